SELECT code, facts FROM pgqueue_why(1);
