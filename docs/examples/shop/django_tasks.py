from django.tasks import TaskContext, task


@task(queue_name="mail", priority=5)
def greet(name: str) -> str:
    return f"Hello, {name}"


@task(takes_context=True)
def attempt_number(context: TaskContext) -> int:
    return context.attempt


def greet_later(name: str) -> str:
    result = greet.enqueue(name)
    return result.id


def greeting(result_id: str) -> str | None:
    result = greet.get_result(result_id)
    return result.return_value if result.is_finished else None
