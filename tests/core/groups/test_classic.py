"""Conversations with a classic group, as golden transcripts."""

from tests.core.groups.conversation import Conversation, same
from millpond.core.groups.settings import GroupSettings


def three() -> Conversation:
    talk = Conversation()
    for name in ("ana", "ben", "cid"):
        talk.join_fully(name)
    return talk

def show(): 
    t = three()
    print(t.read())
    for n in ("ana","ben"): t.heartbeat(n); t.join(n)
    t.sync("ana", ana="0", ben="1", cid="2"); t.sync("ben"); t.sync("cid")
    t.leave("ben")
    t.wait(50000)
    print(t.read())
