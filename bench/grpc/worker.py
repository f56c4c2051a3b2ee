"""`python -m bench.grpc.worker WORK ADDRESS TOPIC COUNT`: does a work once, and prints how long it took, as JSON.

On the cores that the server does not have, where there are several.
"""

import asyncio
import json
import os
import sys

from bench.grpc.works import run


async def main() -> None:
    work, address, topic, count = sys.argv[1:]
    cores = os.sched_getaffinity(0)
    if len(cores) > 1:
        os.sched_setaffinity(0, cores - {min(cores)})
    done, seconds = await run(work, address, topic, int(count))
    print(json.dumps({"done": done, "seconds": seconds}))


if __name__ == "__main__":
    asyncio.run(main())
