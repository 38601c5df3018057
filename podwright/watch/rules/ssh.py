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
        "start sshd there, or write its port into hosts in the target's file (hosts: [user@host:port]); podwright target check TARGET tries it",
        passing=True,
    ),
    rule(
        "ssh-unreachable",
        r"ssh: connect to host .*(timed out|No route to host|Network is unreachable)|Connection to \S+ port \d+ timed out",
        Ending.NO_CAPACITY,
        "a host does not answer over ssh: it is switched off, or no network leads there",
        "see that it is there, then type podwright resume RUN",
        passing=True,
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
    rule(
        "ssh-agent",
        r"SSH Key is not present in the SSH agent",
        Ending.BAD_INPUT,
        "gcloud connects to several workers only with a key that the SSH agent holds",
        "type ssh-add and the path of the key that the line names",
    ),
    rule(
        "ssh-cut",
        r"client_loop: send disconnect|kex_exchange_identification: |Connection to \S+ closed by remote host|ssh_exchange_identification: ",
        Ending.NO_CAPACITY,
        "a host cut the connection over ssh: it shuts down, starts, or takes no more connections",
        "look at its state (preempted, in maintenance), then type podwright resume RUN",
        role=Role.SYMPTOM,
        passing=True,
    ),
    rule(
        "ssh-255",
        r"exited with return code \[255\]|Failed to execute command on multiple workers|ssh: .{0,60}exit(ed with)? (code|status) 255",
        Ending.NO_CAPACITY,
        "ssh ended with code 255 on a worker: there was no connection, or the worker refused the key",
        "the lines before it say which; see that the slice is READY, then type podwright resume RUN",
        role=Role.SYMPTOM,
        passing=True,
    ),
)
