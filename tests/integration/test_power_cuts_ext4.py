"""Two hundred real power cuts on a real ext4; and a planted bug, to show that these tests would see one.

Needs root and loop devices; elsewhere it is skipped, and says so.
"""

import random
from pathlib import Path

import pytest

from millpond.storage.filesystem import OsFile
from tests.integration.expectations import PromiseBroken
from tests.integration.power_cuts import PowerCuts
from tests.integration.powered_filesystem import PoweredFilesystem
from tests.machine.ext4_image import Ext4Image, why_no_image

CYCLES = 200
CYCLES_FOR_A_BUG = 25
IMAGE_BYTES = 64 << 20


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    reason = why_no_image(tmp_path)
    if reason is not None:
        pytest.skip(reason)
    return tmp_path


@pytest.mark.slow
def test_no_power_cut_loses_what_was_acknowledged_or_leaves_half_a_batch(directory: Path) -> None:
    seed = random.SystemRandom().randrange(2**32)
    with Ext4Image(directory, size_bytes=IMAGE_BYTES) as image:
        cuts = PowerCuts(image, seed=seed)
        cuts.run(cycles=CYCLES)
    assert cuts.acks > CYCLES, f"seed {seed}: hardly anything was acknowledged"
    assert cuts.batches_lost > 0, f"seed {seed}: no cut lost anything, so nothing was tested"
    assert cuts.cuts_in_recovery > 0, f"seed {seed}: no cut came during a recovery"


class _SyncsNothing(OsFile):
    """Says yes and does nothing: whoever relies on it acknowledges before anything is on disk."""

    __slots__ = ()

    def sync(self) -> None:
        pass


class _ForgetfulFilesystem(PoweredFilesystem):
    def open(self, path: str, *, create: bool = False) -> OsFile:
        return _SyncsNothing(self.open_descriptor(path, create=create))


@pytest.mark.slow
def test_an_acknowledgement_before_the_sync_is_found(directory: Path) -> None:
    with Ext4Image(directory, size_bytes=IMAGE_BYTES) as image:
        cuts = PowerCuts(image, seed=1, filesystem=_ForgetfulFilesystem)
        with pytest.raises(PromiseBroken):
            cuts.run(cycles=CYCLES_FOR_A_BUG)
