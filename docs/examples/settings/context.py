PGQUEUE = {
    # The default is ["language", "trace"]. A path is that of a ContextVar at the top level of a module.
    "CONTEXT": ["language", "trace", "user", "shop.carrying.current_tenant"],
}

MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    # For "user". It must come after the middleware that sets request.user.
    "django_pgqueue.middleware.CurrentUserMiddleware",
    # For "trace", if you do not use OpenTelemetry. Jobs carry the traceparent of the request.
    "django_pgqueue.middleware.TraceContextMiddleware",
]
