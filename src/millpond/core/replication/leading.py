"""What the leader of one partition knows of its replicas, for as long as its leader epoch lasts.

Invariants: the high watermark never moves back; everything below it is synced on every replica in sync, and on every
one that may be, once a change of the ISR that is under way has been decided (KIP-497); it stands still while fewer are
in sync than the topic asks for, so that those who left meanwhile stay complete (KIP-966). A replica comes into the ISR
only with everything below the high watermark and of the epochs before this one, and only in the life (broker epoch)
in which it said so (KIP-903).
Pure: `now` is monotonic milliseconds. Driven by broker/drivers; thrown away with the leader epoch.
"""

from collections.abc import Collection
from enum import Enum

from millpond.core.replication.members import Members
from millpond.model.ids import LeaderEpoch, Offset
from millpond.model.values import dataclass

_NOTHING = Offset(-1)
_NEVER = -(2**62)

COMING_IN_MS_MAX = 1_000
"""How long after its last fetch a follower may still come in, and the high watermark waits for it."""


@dataclass(frozen=True, slots=True)
class IsrChange:
    """To be asked of the controller (`core/metadata/replicas.py`)."""

    partition_epoch: int
    isr: tuple[tuple[int, int], ...]
    """Brokers, and the broker epochs they are known by."""

    @property
    def brokers(self) -> frozenset[int]:
        return frozenset(broker for broker, _ in self.isr)


class IsrOutcome(Enum):
    DONE = "done"  # decided: the image shows it, or is about to
    REFUSED = "refused"  # will never be
    UNKNOWN = "unknown"  # may have been decided, or be yet: the answer was lost


class Kept(Enum):
    """Of something appended with acks=all."""

    YES = "yes"
    NOT_YET = "not yet"
    NOT_ENOUGH = "not enough replicas"  # too few are in sync now; it may yet be kept, or not


@dataclass(slots=True)
class _Follower:
    """As its fetches tell it. `end` is what it has synced, and -1 until it has fetched from this leader."""

    caught_up_at: int
    broker_epoch: int = -1
    end: Offset = _NOTHING
    fetched_at: int = _NEVER
    leader_end: Offset = _NOTHING
    """The leader's end when it last fetched."""


class Leading:
    def __init__(
        self,
        *,
        broker: int,
        leader_epoch: LeaderEpoch,
        epoch_start: Offset,
        synced_end: Offset,
        high_watermark: Offset,
        members: Members,
        lag_ms_max: int,
        now: int,
    ) -> None:
        """`epoch_start` is the end of the log when leadership came, `high_watermark` the last one known here."""
        self.broker = broker
        self.leader_epoch = leader_epoch
        self.epoch_start = epoch_start
        self.high_watermark = min(high_watermark, epoch_start)  # an unclean election may have cut below it
        self.members = members
        self._synced_end = synced_end
        self._lag_ms_max = lag_ms_max
        self._now = now
        self._followers: dict[int, _Follower] = {}
        self._asked: IsrChange | None = None
        self._doubtful: frozenset[int] = frozenset()
        """Asked to be in sync, and nobody knows whether they are."""
        self._know_followers()
        self._advance()

    def __repr__(self) -> str:
        return f"Leading({self.broker}@{self.leader_epoch}, {self.high_watermark} of {self._synced_end})"

    # What happens

    def own_synced(self, end: Offset) -> bool:
        """Everything below `end` is safe here. Whether the high watermark moved, as in all of these."""
        self._synced_end = end
        if self._followers:
            return self._advance()
        if end > self.high_watermark:
            self.high_watermark = end
            return True
        return False

    def fetched(self, replica: int, *, broker_epoch: int, offset: Offset, leader_end: Offset, now: int) -> bool:
        """A follower asks for what is at `offset`: everything below is synced there, and is the same as here.

        So it is only told of fetches in this leader epoch, and only where `following.diverging` found nothing.
        """
        follower = self._followers.get(replica)
        self._now = max(self._now, now)
        known = self.members.epochs.get(replica, -1)
        if follower is None or broker_epoch < max(follower.broker_epoch, known):
            return False  # no replica, or a word from an earlier life
        if offset >= leader_end:
            follower.caught_up_at = now
        elif follower.fetched_at != _NEVER and offset >= follower.leader_end:
            follower.caught_up_at = max(follower.caught_up_at, follower.fetched_at)
        follower.broker_epoch = broker_epoch
        follower.end = offset
        follower.fetched_at = now
        follower.leader_end = leader_end
        return self._advance()

    def image_changed(self, members: Members, *, now: int) -> bool:
        """The image of this same leader epoch has other replicas, another ISR, other settings or other live brokers."""
        self._now = max(self._now, now)
        if members.partition_epoch > self.members.partition_epoch:
            # Whatever was asked was asked of an earlier partition epoch: it is this change, or will be refused.
            self._asked, self._doubtful = None, frozenset()
        for replica in self._followers.keys() & (set(members.isr) - set(self.members.isr)):
            self._followers[replica].caught_up_at = self._now  # its time begins when it comes in
        self.members = members
        self._know_followers()
        return self._advance()

    def tick(self, now: int) -> bool:
        self._now = max(self._now, now)
        return self._advance()

    # The ISR

    def ask_isr(self, now: int) -> IsrChange | None:
        """The change to ask for now, if any. From here on it counts as under way: answer with `isr_answered`."""
        self._now = max(self._now, now)
        if self._asked is not None:
            return None
        wanted = self.isr_wanted(now)
        if wanted == set(self.members.isr) and not self._doubtful:
            return None
        if any(self._epoch_of(each) < 0 for each in wanted):
            return None  # one of them is not up as far as is known here: the image is about to change
        isr = tuple((each, self._epoch_of(each)) for each in self.members.replicas if each in wanted)
        self._asked = IsrChange(self.members.partition_epoch, isr)
        return self._asked

    def isr_wanted(self, now: int) -> frozenset[int]:
        """The replicas that are in sync, as seen from here."""
        stay = {each for each in self.members.isr if each == self.broker or self._keeps_up(each, now)}
        come = {each for each in self._followers if each not in self.members.isr and self._may_come(each, now)}
        return frozenset(stay | come)

    def isr_answered(self, change: IsrChange, outcome: IsrOutcome) -> bool:
        if change is not self._asked:
            return False  # the image has been faster
        if outcome is IsrOutcome.DONE:
            return False  # the image will show it; until then it counts
        if outcome is IsrOutcome.UNKNOWN:
            self._doubtful |= change.brokers - set(self.members.isr)
        self._asked = None
        return self._advance()

    # Questions

    @property
    def is_enough(self) -> bool:
        """Whether acks=all may be appended: otherwise `NotEnoughReplicas`."""
        return len(self.members.isr) >= self.members.insync_min

    def is_kept(self, end: Offset) -> Kept:
        """Of what was appended with acks=all and ends before `end`."""
        if self.high_watermark >= end:
            return Kept.YES
        return Kept.NOT_YET if self.is_enough else Kept.NOT_ENOUGH

    @property
    def is_caught_up_with_the_past(self) -> bool:
        """Whether the high watermark is at least as high as any earlier leader's. Before, the end that consumers are
        told of could seem to fall: they are told OFFSET_NOT_AVAILABLE instead (KIP-207)."""
        return self.high_watermark >= self.epoch_start

    # Within

    def _know_followers(self) -> None:
        """One that is in sync already has its time from now; any other must prove itself first."""
        for replica in self.members.replicas:
            if replica != self.broker and replica not in self._followers:
                self._followers[replica] = _Follower(self._now if replica in self.members.isr else _NEVER)
        for replica in self._followers.keys() - set(self.members.replicas):
            del self._followers[replica]

    def _advance(self) -> bool:
        if not self.is_enough:
            return False
        end = min([self._end_of(each) for each in self._counted()], default=_NOTHING)
        if end <= self.high_watermark:
            return False
        self.high_watermark = end
        return True

    def _counted(self) -> Collection[int]:
        """Everybody who is in sync, may be soon, or only needs the high watermark to wait a moment to be so.

        Without the last, a follower that is always one fetch behind a busy leader would never come in.
        """
        if len(self.members.isr) == len(self.members.replicas):
            return self.members.replicas  # as on most days: there is nobody else to ask about
        counted = {*self.members.isr, *self._doubtful}
        if self._asked is not None:
            counted |= self._asked.brokers
        counted.update(each for each in self._followers if each not in counted and self._is_about_to_come(each))
        return counted

    def _end_of(self, replica: int) -> Offset:
        if replica == self.broker:
            return self._synced_end
        follower = self._followers.get(replica)
        return follower.end if follower is not None else _NOTHING

    def _epoch_of(self, replica: int) -> int:
        """In a change, the life it fetched in; of one in sync that has not fetched yet, the one in the image."""
        follower = self._followers.get(replica)
        if follower is not None and replica not in self.members.isr:
            return follower.broker_epoch
        return self.members.epochs.get(replica, -1)

    def _keeps_up(self, replica: int, now: int) -> bool:
        follower = self._followers[replica]
        return follower.end >= self._synced_end or now - follower.caught_up_at <= self._lag_ms_max

    def _may_come(self, replica: int, now: int) -> bool:
        follower = self._followers[replica]
        complete = follower.end >= max(self.high_watermark, self.epoch_start)
        return complete and now - follower.fetched_at <= COMING_IN_MS_MAX and self._is_up(follower, replica)

    def _is_about_to_come(self, replica: int) -> bool:
        follower = self._followers[replica]
        caught_up = self._now - follower.caught_up_at <= self._lag_ms_max
        fetching = self._now - follower.fetched_at <= COMING_IN_MS_MAX
        return caught_up and fetching and self._is_up(follower, replica)

    def _is_up(self, follower: _Follower, replica: int) -> bool:
        return follower.broker_epoch >= 0 and self.members.epochs.get(replica) == follower.broker_epoch
