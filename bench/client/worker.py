"""`python -m bench.client.worker WORK CLIENT ADDRESS TOPIC COUNT`: one way, once, in a process of its own.

Prints the seconds it took and those it had of the processor, as JSON; importing and starting Python are not among them.
"""

import json
import sys
import time

from bench.client.ways import WAYS


def main() -> None:
    work, client, address, topic, count = sys.argv[1:]
    way = WAYS[work][client]
    began, cpu_began = time.perf_counter(), time.process_time()
    way(address, topic, int(count))
    print(json.dumps({"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - cpu_began}))


if __name__ == "__main__":
    main()
