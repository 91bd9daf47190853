-- Only after the typed tables have refused a batch: marks the events whose data is not what they want, so that the rest can go in.
update staged set fit = false where fit and seq in (
    select seq from (
        select
            s.seq, json_extract_string(s.data, '$.' || split_part(w.field, ' ', 1)) as value, rtrim(split_part(w.field, ' ', 2), '?') as wanted,
            ends_with(w.field, '?') as is_optional
        from staged s join (select type, unnest(fields) as field from required) w on w.type = s.type where s.fit
    ) where case
        when value is null then not is_optional
        when wanted = 'integer' then try_cast(value as integer) is null
        when wanted = 'bigint' then try_cast(value as bigint) is null
        when wanted = 'double' then isfinite(try_cast(value as double)) is not true
        when wanted = 'boolean' then try_cast(value as boolean) is null
        when wanted = 'timestamp' then try_cast(value as timestamp) is null
        else false
    end
);
