"""Who waits for memory, and in which order."""

from millpond.net.memory import MemoryBudget


class Waiter:
    def __init__(self) -> None:
        self.granted = 0

    def memory_granted(self) -> None:
        self.granted += 1


def take(budget: MemoryBudget, who: Waiter, by_bytes: int, *, mid_frame: bool = True, answering: bool = False) -> bool:
    budget.used_bytes += by_bytes
    return budget.is_tight() and budget.waits(who, is_more=by_bytes > 0, mid_frame=mid_frame, answering=answering)


def test_nobody_waits_below_the_limit() -> None:
    budget = MemoryBudget(100)
    assert not take(budget, Waiter(), 100)
    assert not budget.exceeded


def test_the_first_that_exceeds_may_finish_its_frame_and_the_others_wait() -> None:
    budget, first, second = MemoryBudget(100), Waiter(), Waiter()
    assert not take(budget, first, 101)
    assert take(budget, second, 10)
    assert not take(budget, first, 50)
    assert (first.granted, second.granted) == (1, 0)


def test_the_exempt_one_waits_after_its_frame_and_hands_the_exemption_on_when_it_is_answered() -> None:
    budget, first, second = MemoryBudget(100), Waiter(), Waiter()
    take(budget, first, 101)
    take(budget, second, 101)
    assert take(budget, first, 0, mid_frame=False, answering=True)
    assert second.granted == 0
    take(budget, first, -1, mid_frame=False)
    assert (first.granted, second.granted) == (1, 1)


def test_all_go_on_once_there_is_memory_again() -> None:
    budget, first, second, third = MemoryBudget(100), Waiter(), Waiter(), Waiter()
    for waiter in (first, second, third):
        take(budget, waiter, 60)
    assert (first.granted, second.granted, third.granted) == (0, 1, 0)  # the first was within the limit
    budget.leave(second, 60)
    assert third.granted == 1  # exempt, as the next in order
    budget.leave(first, 60)
    assert budget.used_bytes == 60


def test_one_that_left_is_not_called_again() -> None:
    budget, first, second = MemoryBudget(100), Waiter(), Waiter()
    take(budget, first, 150)
    take(budget, second, 10)
    budget.leave(second, 10)
    budget.leave(first, 150)
    assert second.granted == 0
    assert budget.used_bytes == 0


def test_one_that_can_give_back_by_itself_never_waits() -> None:
    budget = MemoryBudget(100)
    assert not take(budget, Waiter(), 1_000, mid_frame=False)


def test_what_came_behind_the_exempt_ones_frame_waits_as_others_do_once_it_is_answered() -> None:
    budget, first, second = MemoryBudget(10), Waiter(), Waiter()
    take(budget, first, 20)
    assert take(budget, second, 20)
    take(budget, first, 1, mid_frame=False, answering=True)
    take(budget, first, 1, mid_frame=True, answering=True)
    take(budget, first, -20, mid_frame=True)
    assert (first.granted, second.granted) == (1, 1), "else they would wait for each other"
