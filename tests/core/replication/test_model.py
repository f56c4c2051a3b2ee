from tests.core.replication.chance import run


def test_x() -> None:
    for seed in range(100):
        run(seed)
