from celery import chain, chord, group, shared_task


@shared_task
def add(x, y):
    return x + y


@shared_task
def total(numbers):
    return sum(numbers)


@shared_task
def report(request, exc, traceback):
    print(f"{request.id} has failed: {exc}")


def in_sequence():
    return chain(add.s(2, 2), add.s(4), add.s(8))()


def in_parallel():
    return group(add.s(i, i) for i in range(10))()


def sum_of_all():
    return chord((add.s(i, i) for i in range(10)), total.s())()


def with_callbacks():
    return add.apply_async((2, 2), link=add.s(16), link_error=report.s())


def in_chunks():
    return add.chunks([(i, i) for i in range(100)], 10)()


def in_one_task():
    return add.starmap([(2, 2), (4, 4)]).apply_async()


@shared_task(bind=True)
def count_down(self, number):
    if number:
        return self.replace(count_down.s(number - 1))
    return "zero"
