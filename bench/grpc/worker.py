"""`python -m bench.grpc.worker WORK ADDRESS TOPIC COUNT`: does a work once, and prints how long it took, as JSON."""

import asyncio
import json
import sys
import time

from bench.grpc.works import run


async def main() -> None:
    work, address, topic, count = sys.argv[1:]
    began = time.perf_counter()
    done = await run(work, address, topic, int(count))
    print(json.dumps({"done": done, "seconds": time.perf_counter() - began}))


if __name__ == "__main__":
    asyncio.run(main())
