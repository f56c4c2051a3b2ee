"""`python -m bench.broker.peers [NAME ...]`: fetches other brokers, and kcat, for the bench to stand beside."""

import sys

from bench.broker.peers import PEERS
from bench.broker.peers.cache import kcat
from bench.broker.peers.fetching import FETCHES, CannotFetch
from bench.tables import make_console


def main() -> None:
    console = make_console()
    names = sys.argv[1:] or list(FETCHES)
    if unknown := set(names) - set(FETCHES):
        raise SystemExit(f"{', '.join(sorted(unknown))} cannot be fetched; allowed are {', '.join(FETCHES)}")
    for name in names:
        if not why_not_here(name):
            console.print(f"{name}: here already")
            continue
        try:
            with console.status(f"fetching {name}"):
                FETCHES[name]()
            console.print(f"{name}: {why_not_here(name) or 'fetched'}", markup=False)
        except CannotFetch as error:
            console.print(f"{name}: not here ({error})", markup=False)


def why_not_here(name: str) -> str | None:
    if name == "kcat":
        return None if kcat() else "not fetched"
    return PEERS[name]()[0].why_not_here()


if __name__ == "__main__":
    main()
