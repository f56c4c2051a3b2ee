"""Share sessions: epochs that count up, partitions that are remembered, and no more sessions than allowed."""

from millpond.core.delivery.sessions import (
    CLOSING,
    EPOCH_MAX,
    Member,
    PartitionId,
    Session,
    ShareSessions,
    Trouble,
    update,
)

ANA, BEN = Member("g", "ana"), Member("g", "ben")
A0, A1, B0 = PartitionId(b"a" * 16, 0), PartitionId(b"a" * 16, 1), PartitionId(b"b" * 16, 0)


def opened(sessions: ShareSessions, member: Member = ANA) -> Session:
    session = sessions.open(member)
    assert isinstance(session, Session)
    return session


def test_requests_count_up_and_one_that_does_not_is_refused() -> None:
    sessions = ShareSessions(sessions_max=2)
    session = opened(sessions)
    assert sessions.go_on(ANA, 1) is session
    assert sessions.go_on(ANA, 1) is Trouble.WRONG_EPOCH
    assert sessions.go_on(ANA, 3) is Trouble.WRONG_EPOCH
    assert sessions.go_on(ANA, 2) is session
    assert sessions.go_on(BEN, 1) is Trouble.NOT_FOUND
    assert sessions.go_on(Member("other", "ana"), 3) is Trouble.NOT_FOUND


def test_epochs_begin_anew_with_1_where_numbers_end() -> None:
    sessions = ShareSessions(sessions_max=1)
    session = opened(sessions)
    session.epoch = EPOCH_MAX
    assert sessions.go_on(ANA, EPOCH_MAX) is session
    assert sessions.go_on(ANA, 1) is session


def test_the_last_request_ends_it_whatever_the_epoch_was() -> None:
    sessions = ShareSessions(sessions_max=1)
    session = opened(sessions)
    assert sessions.go_on(ANA, CLOSING) is session
    assert sessions.go_on(ANA, CLOSING) is Trouble.NOT_FOUND
    assert len(sessions) == 0


def test_there_are_no_more_than_allowed_but_one_may_begin_anew() -> None:
    sessions = ShareSessions(sessions_max=1)
    first = opened(sessions)
    assert sessions.open(BEN) is Trouble.TOO_MANY
    second = opened(sessions)
    assert second is not first
    assert not sessions.drop(first)
    assert sessions.drop(second)
    opened(sessions, BEN)


def test_partitions_are_remembered_and_each_comes_first_in_its_turn() -> None:
    session = Session(ANA)
    assert session.in_turn() == []
    update(session, named=[A0, A1], forgotten=[])
    update(session, named=[B0, A0], forgotten=[])
    assert [session.in_turn()[0] for _ in range(6)] == [A1, B0, A0, A1, B0, A0]
    update(session, named=[], forgotten=[A1, A1])
    assert sorted(session.in_turn()) == [A0, B0]
