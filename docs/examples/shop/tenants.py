from django_pgqueue import enqueue, enqueue_many, task

RENDERED: list[tuple[str, int]] = []


@task(group="tenant")
def render(tenant: str, page: int) -> None:
    """Each tenant is a group: the argument names it."""
    RENDERED.append((tenant, page))


def region(address: str, **rest: object) -> str:
    return address.rpartition(".")[2]


@task(group=region)
def send_newsletter(address: str, urgent: bool = False) -> None:
    """A function gets the arguments of the call, and returns the group."""


def enqueue_some() -> None:
    enqueue_many(render.bind("acme", page) for page in range(500))
    enqueue(render, "tiny shop", 1)  # starts after a few jobs of acme
    enqueue(send_newsletter.using(group_key="vip"), "ann@example.com")
