from django_pgqueue import RateLimit, ShardsFailed, on_shards, pause, set_limit


def slow_down() -> None:
    on_shards(set_limit, name="crm", rate_limit=RateLimit(5, per=1))  # 5 a second in each shard


def hold_mail(reason: str) -> dict[str, str]:
    """Return why some shards did not answer. To repeat it for them is harmless."""
    try:
        on_shards(pause, queue="mail", reason=reason)
    except ShardsFailed as error:
        return error.failed
    return {}
