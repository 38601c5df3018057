"""What ssh says of a host that it cannot log in to."""

from __future__ import annotations

from podwright.rundir import Ending
from podwright.watch.rules.rule import Role, rule

RULES = (
    rule(
        "ssh-refused",
        r"ssh: connect to host \S+ port \d+: Connection refused",
        Ending.NO_CAPACITY,
        "a host takes no connections over ssh: sshd does not run there, or listens at another port",
        "start sshd there, or write its port into hosts in the target's file (hosts: [user@host:port]); podwright target check tries it",
    ),
    rule(
        "ssh-unreachable",
        r"ssh: connect to host .*(timed out|No route to host|Network is unreachable)|Connection to \S+ port \d+ timed out",
        Ending.NO_CAPACITY,
        "a host does not answer over ssh: it is switched off, or no network leads there",
        "see that it is there, then type podwright resume RUN",
    ),
    rule(
        "ssh-name",
        r"ssh: Could not resolve hostname",
        Ending.BAD_INPUT,
        "this machine cannot resolve the name of a host",
        "fix hosts in the target's file, or give the name an entry in ~/.ssh/config",
    ),
    rule(
        "ssh-key",
        r"Permission denied \(publickey",
        Ending.BAD_INPUT,
        "a host takes none of your keys",
        "type ssh-copy-id and the host's name; a key with a passphrase is loaded with ssh-add first",
    ),
    rule(
        "ssh-host-key-changed",
        r"REMOTE HOST IDENTIFICATION HAS CHANGED",
        Ending.BAD_INPUT,
        "a host shows another key than it used to: it was set up anew, or another machine answers in its place",
        "if you know why, type ssh-keygen -R and the host's name",
    ),
    rule(
        "ssh-host-key",
        r"Host key verification failed",
        Ending.BAD_INPUT,
        "the key that a host shows is not known on this machine",
        "log in once by hand and compare what it shows, which writes it down",
        role=Role.CONSEQUENCE,
    ),
)
