"""The story of one seed, for whoever has to find out: python -m tests.core.raft SEED"""

import sys

from tests.core.raft.chaos import Chaos


def main(seed: int) -> None:
    chaos = Chaos(seed)
    story: list[str] = []
    chaos.cluster.story = story
    try:
        chaos.run()
    finally:
        sys.stdout.write("\n".join([*story, f"profile {chaos.profile.name}, {chaos.cluster.inputs} inputs", ""]))


if __name__ == "__main__":
    main(int(sys.argv[1]))
