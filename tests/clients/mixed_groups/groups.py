"""The groups: which clients queue in one place, and as what."""

from dataclasses import dataclass, field


@dataclass
class Crew:
    """The members of a group that use one client."""

    client: str  # as the members' names say
    options: dict = field(default_factory=dict)  # what only they are asked


@dataclass
class Group:
    name: str
    recipe: str
    crews: list
    options: dict = field(default_factory=dict)  # what all members are asked
    pause: int = 200  # microseconds: how long a section lasts

    @property
    def leases(self):
        """How many may be inside of a semaphore; 0 where it is a lock."""
        return int(self.options.get("leases", 0))


def ours(layout):
    return Crew("ours", {"layout": layout})


CURATOR, KAZOO, FOREIGN = Crew("Curator"), Crew("kazoo"), Crew("zookeeper-client")
# Told so, kazoo respects names that end so and with a number; else only its own.
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
