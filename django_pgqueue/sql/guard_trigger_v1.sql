CREATE TRIGGER pgqueue_guard BEFORE UPDATE ON pgqueue_job FOR EACH ROW
    WHEN (OLD.status IS DISTINCT FROM NEW.status OR OLD.shelf <> 0 OR NEW.shelf <> 0 OR NEW.id <> OLD.id)
    EXECUTE FUNCTION pgqueue_guard_v1();
