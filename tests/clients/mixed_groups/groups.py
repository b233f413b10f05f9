"""The groups: the clients that queue for one lock, and their recipe."""

from dataclasses import dataclass, field


@dataclass
class Crew:
    """The members of a group that use one client."""

    client: str  # as in the members' names
    options: dict = field(default_factory=dict)  # options of these members only


@dataclass
class Group:
    name: str
    recipe: str
    crews: list
    options: dict = field(default_factory=dict)  # options of all members
    pause: int = 200  # microseconds: the length of a section

    @property
    def leases(self):
        """The number of leases of a semaphore; 0 for a lock."""
        return int(self.options.get("leases", 0))


def ours(layout):
    return Crew("ours", {"layout": layout})


CURATOR, KAZOO, FOREIGN = Crew("Curator"), Crew("kazoo"), Crew("zookeeper-client")
# With this option, kazoo respects names that end so and with a number; otherwise only its own.
KAZOO_MUTEX = Crew("kazoo", {"writes": "-lock-"})
KAZOO_RWLOCK = Crew("kazoo", {"writes": "-__WRIT__", "reads": "-__READ__"})

GROUPS = [
    Group("mutex", "mutex", [ours("curator"), CURATOR, FOREIGN]),
    Group("mutex-kazoo", "mutex", [ours("kazoo"), KAZOO]),
    Group("mutex-patterns", "mutex", [ours("curator"), KAZOO_MUTEX]),
    Group("rwlock", "rwlock", [ours("curator"), CURATOR]),
    Group("rwlock-kazoo", "rwlock", [ours("kazoo"), KAZOO]),
    Group("rwlock-patterns", "rwlock", [ours("curator"), KAZOO_RWLOCK]),
    Group("semaphore", "semaphore", [ours("curator"), CURATOR], {"leases": "3"}, pause=5000),
    Group("semaphore-mutex", "semaphore-mutex", [ours("curator"), CURATOR]),
    Group("election", "election", [ours("curator"), CURATOR]),
]
