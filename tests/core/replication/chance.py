"""A life of the model, chosen by chance from a seed: work, faults, and healing at the end."""

from millpond.core.metadata import elections
from tests.core.replication.model import Node, World
from tests.core.replication.promises import Broken, Promises

HEALING_ROUNDS_MAX = 300

WEIGHTS = {
    "deliver": 130,
    "learn": 30,
    "fetch": 30,
    "sync": 30,
    "produce": 20,
    "heartbeat": 16,
    "tick": 6,
    "ask_isr": 12,
    "acknowledge": 12,
    "start": 8,
    "release": 3,
}
FAULTS = {
    "lose": 5,
    "hold": 5,
    "tick": 10,
    "give_up_asking": 3,
    "crash": 1.2,
    "lose_disk": 0.3,
    "hand_over": 0.4,
    "balance": 0.5,
    "move": 0.6,
    "alter": 0.4,
    "expire": 1,
    "change_controller": 0.2,
}
"""Each is left out of some lives and common in others."""

ONLY_LEADERS = {"produce", "ask_isr", "acknowledge", "give_up_asking", "expire"}


def run(seed: int, *, steps: int = 1500, unclean: bool = False) -> World:
    """Raises `Broken`, with the story, if a promise is. With unclean elections only that all is well in the end."""
    world = World(seed, unclean=unclean)
    promises = Promises(world)
    try:
        weights = {verb: weight * world.rng.choice([0.25, 1, 1]) for verb, weight in WEIGHTS.items()}
        for fault, weight in FAULTS.items():
            weights[fault] = weights.get(fault, 0) + weight * world.rng.choice([0, 0.3, 1, 1, 5])
        for verb in world.rng.choices(list(weights), list(weights.values()), k=steps):
            step(world, verb, chosen(world, verb))
            promises.check()
        heal(world, promises)
        promises.all_copies_are_equal()
    except AssertionError as error:
        raise Broken(f"seed {seed}: {error}\n" + "\n".join(world.story[-25:])) from error
    return world


def chosen(world: World, verb: str) -> Node:
    """What only leaders do is done by leaders, of whom there may be several that believe they are."""
    nodes = list(world.nodes.values())
    leaders = [node for node in nodes if node.leading is not None]
    return world.rng.choice(leaders if leaders and verb in ONLY_LEADERS else nodes)


def step(world: World, verb: str, node: Node) -> None:
    match verb:
        case "deliver" | "lose" | "hold" | "release":
            on_the_network(world, verb)
        case "crash" | "lose_disk" | "start":
            to_a_life(world, verb, node)
        case "learn":
            world.learn(node, world.rng.randint(1, 4))
        case "tick":
            world.now += world.rng.randint(1, 80)
            world.fence_the_silent()
            if node.leading is not None:
                node.leading.tick(world.local_time(node))
        case "hand_over":
            world.tell(f"{node.broker} hands over")
            world.decide(elections.hand_over(world.image, node.broker))
        case "balance":
            world.decide(elections.balance(world.image))
        case "move" | "alter" | "change_controller":
            getattr(world, verb)()
        case _:
            getattr(world, verb)(node)


def on_the_network(world: World, verb: str) -> None:
    rng = world.rng
    if verb == "release":
        if world.held:
            world.deliver(world.held.pop(rng.randrange(len(world.held))))
        return
    if not world.messages:
        return
    # Mostly the older ones, so that something comes of them.
    at = min(rng.randrange(len(world.messages)), rng.randrange(len(world.messages)))
    message = world.messages.pop(at)
    if verb == "deliver":
        world.deliver(message)
    elif verb == "hold":
        world.held.append(message)


def to_a_life(world: World, verb: str, node: Node) -> None:
    if verb == "start":
        if not node.up:
            world.tell(f"{node.broker} starts")
            world.start(node)
    elif node.up:
        world.tell(f"{node.broker} crashes ({verb})")
        world.crash(node, lose_disk=verb == "lose_disk")
        if world.rng.random() < 0.5:
            world.start(node)  # before anybody notices


def heal(world: World, promises: Promises) -> None:
    """Everybody is up, hears of everything, and is heard."""
    for node in world.nodes.values():
        if not node.up or world.image.brokers[node.broker].shutting_down:
            world.start(node)
    for _ in range(HEALING_ROUNDS_MAX):
        world.now += 40
        world.fence_the_silent()
        for node in world.nodes.values():
            world.learn(node, len(world.images))
            world.heartbeat(node)
            world.sync(node)
            world.fetch(node)
        for _ in range(3):
            messages, world.messages = world.messages, []
            for message in messages:
                world.deliver(message)
        for node in world.nodes.values():
            world.give_up_asking(node)
            world.ask_isr(node)
            world.acknowledge(node)
        promises.check()
        if is_well(world):
            return


def is_well(world: World) -> bool:
    partition = world.partition
    leader = world.nodes.get(partition.leader)
    if leader is None or leader.leading is None or partition.moving:
        return False
    ends = {len(world.nodes[broker].log) for broker in partition.replicas}
    return (
        set(partition.isr) == set(partition.replicas)
        and ends == {leader.leading.high_watermark}
        and leader.leading.leader_epoch == partition.leader_epoch
    )
