-- The changes that are no legal transition. The condition is here and not in the function, so that a legal change,
-- such as each claim, does not call a function. This does not check DELETE and INSERT.
CREATE TRIGGER pgqueue_guard BEFORE UPDATE ON pgqueue_job FOR EACH ROW
    WHEN (
        NEW.id <> OLD.id OR OLD.shelf <> 0 OR NEW.shelf <> 0 OR NOT (
            OLD.status = NEW.status
            OR OLD.status IN ('pending', 'retry') AND NEW.status IN ('pending', 'retry', 'running', 'blocked')
            OR OLD.status = 'running' AND NEW.status IN ('pending', 'retry', 'blocked')
            OR OLD.status = 'blocked' AND NEW.status IN ('pending', 'retry')
        )
    )
    EXECUTE FUNCTION pgqueue_guard_v1();
