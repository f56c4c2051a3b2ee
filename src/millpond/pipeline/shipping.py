"""This package on its way to the executors of a cluster, so that they run the code that the driver runs.

    driver       addPyFile(millpond-0.1.zip)            every executor fetches it before its first task
    executors    PYTHONPATH=millpond-0.1.zip            in their own folder, for what workers are forked from

What the package needs (numpy, pandas, pyarrow, crc32c, cramjam, msgspec, ...) has to be there: those are compiled for a
machine, and do not run from a zip.

Driven by session.py.
"""

import atexit
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import Final

import millpond

PACKAGES: Final = ("millpond", "pyspark_millpond")
NAME: Final = f"millpond-{millpond.__version__}.zip"
SETTINGS: Final = {"spark.executorEnv.PYTHONPATH": NAME}


def packed() -> Path:
    """The packages as they are here, in a zip that is removed when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="millpond-shipped-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    root = Path(millpond.__file__).parents[1]
    with zipfile.ZipFile(folder / NAME, "w", zipfile.ZIP_DEFLATED) as out:
        for package in PACKAGES:
            for path in sorted((root / package).rglob("*.py")):
                out.write(path, path.relative_to(root))
    return folder / NAME
