"""Which leader wrote which part of a log: ascending (epoch, first offset) pairs.

Invariant: epochs and offsets both ascend strictly. An epoch is on disk before the first batch that carries it,
so at recovery a batch whose epoch is not the history's was not written so: it is torn or rotten.
Pure; log.py writes it to the `leader-epochs` document as [[epoch, first offset], ...].
"""

from bisect import bisect_right

from millpond.model.ids import NO_EPOCH, LeaderEpoch, Offset

_NEVER = Offset(2**63 - 1)


class LeaderEpochs:
    __slots__ = ("_epochs", "_starts", "latest")

    def __init__(self, pairs: list[tuple[LeaderEpoch, Offset]]) -> None:
        self._epochs = [epoch for epoch, _ in pairs]
        self._starts = [start for _, start in pairs]
        self.latest = self._epochs[-1] if self._epochs else NO_EPOCH

    def pairs(self) -> list[tuple[LeaderEpoch, Offset]]:
        return list(zip(self._epochs, self._starts, strict=True))

    def adopt(self, other: "LeaderEpochs") -> None:
        """Becomes the other history, for everyone who holds this one."""
        self._epochs, self._starts, self.latest = other._epochs, other._starts, other.latest

    def begin(self, epoch: LeaderEpoch, start: Offset) -> "LeaderEpochs":
        """The history with a new leader from `start` on. Leaders that wrote nothing leave no trace."""
        kept = [pair for pair in self.pairs() if pair[1] < start]
        if kept and kept[-1][0] == epoch:
            return LeaderEpochs(kept)  # goes on, after one that began at `start` and wrote nothing
        assert not kept or kept[-1][0] < epoch, (kept, epoch)
        return LeaderEpochs([*kept, (epoch, start)])

    def truncate(self, end: Offset) -> "LeaderEpochs":
        """The history of a log cut to `end`."""
        return LeaderEpochs([pair for pair in self.pairs() if pair[1] < end])

    def forget_before(self, start: Offset) -> "LeaderEpochs":
        """The history of a log that now begins at `start`."""
        later = [pair for pair in self.pairs() if pair[1] > start]
        epoch, _ = self.at(start)
        return LeaderEpochs(later if epoch == NO_EPOCH else [(epoch, start), *later])

    def at(self, offset: int) -> tuple[LeaderEpoch, Offset]:
        """The epoch `offset` was written in, and the offset at which the next epoch begins."""
        entry = bisect_right(self._starts, offset)
        epoch = self._epochs[entry - 1] if entry else NO_EPOCH
        return epoch, self._starts[entry] if entry < len(self._starts) else _NEVER

    def end_of(self, epoch: LeaderEpoch, *, log_end: Offset) -> tuple[LeaderEpoch, Offset]:
        """The largest epoch known that is not above `epoch`, and the offset it ends before.

        A follower that asks with its own latest epoch learns where to cut (KIP-101, KIP-279).
        """
        if epoch == self.latest and self._epochs:
            return epoch, log_end
        entry = bisect_right(self._epochs, epoch)
        if entry == len(self._epochs):
            return NO_EPOCH, Offset(-1)  # newer than anything here: the asker is ahead of this log
        if entry == 0:
            return epoch, self._starts[0]  # older than anything here: nothing of that epoch is left
        return self._epochs[entry - 1], self._starts[entry]
