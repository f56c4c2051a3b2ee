"""`python -m bench.broker.peers [NAME ...]`: fetches other brokers, so that the bench can stand beside them."""

import sys

from bench.broker.peers import PEERS
from bench.broker.peers.fetching import FETCHES, CannotFetch
from bench.tables import make_console


def main() -> None:
    console = make_console()
    names = sys.argv[1:] or list(FETCHES)
    if unknown := set(names) - set(FETCHES):
        raise SystemExit(f"{', '.join(sorted(unknown))} cannot be fetched; allowed are {', '.join(FETCHES)}")
    for name in names:
        if not PEERS[name]()[0].why_not_here():
            console.print(f"{name}: here already")
            continue
        try:
            with console.status(f"fetching {name}"):
                FETCHES[name]()
            console.print(f"{name}: {PEERS[name]()[0].why_not_here() or 'fetched'}", markup=False)
        except CannotFetch as error:
            console.print(f"{name}: not here ({error})", markup=False)


if __name__ == "__main__":
    main()
