SELECT coalesce(notable -> 0 ->> 'outcome', 'lost') FROM _pgqueue_give_back(
    ARRAY[%s]::bigint[], ARRAY[%s]::bigint[], '{true}', '{false}', '{true}', %s, %s, %s, %s)
