-- One vectorised pass over a batch of stored bytes (temporary table `incoming`): the subject and the head taken apart. What is not JSON is
-- left out; `fit` is false for what else has to go the slow way: an unknown or old type, perhaps a blob in the data's place. NaN, trailing
-- commas and numbers beyond a double are JSON to DuckDB but not to the codec: what looks like one goes the slow way too, unless `checked`.
create or replace temp table staged as
with parts as (
    select
        shard, seq, string_split(subject, '.') as p, json_extract(body, '$.data') as data, json_extract_string(body, fields()) as x,
        not checked and (contains(body, '"$blob"') or contains(body, repeat('[', 32)) or regexp_matches(body,
            '[:,\[]\s*-?\s*(?:[nN][aA][nN]|[iI][nN][fF]|[0-9.]+[eE]\+?[0-9]{3})|,\s*[\]}]')) as is_odd
    from incoming where json_valid(body)
), named as (
    select
        shard, seq, data, p, is_odd, head(x, 'type') as type, head(x, 'event_id') as event_id, head(x, 'causation_id') as causation_id,
        try_cast(head(x, 'recorded_at') as timestamp) as recorded_at, try_cast(head(x, 'attempt') as integer) as attempt,
        try_cast(head(x, 'epoch') as bigint) as epoch, try_cast(head(x, 'ordinal') as integer) as ordinal,
        case when p[8] = 'cmd' then split_part(head(x, 'type'), '.', 1) else p[8] end as kind
    from parts
)
select
    shard, seq, data, p, n.type, event_id, causation_id, recorded_at, attempt, epoch, ordinal, kind,
    coalesce(
        p[1] = 'gym' and p[2] = 'evt' and p[3] = shard::varchar and len(p) = case when p[8] = 'cmd' then 10 else 8 end
        and kind = split_part(n.type, '.', 1) and recorded_at is not null and event_id is not null
        and attempt >= 0 and epoch >= 0 and ordinal >= 0 and json_type(data) = 'OBJECT' and r.type is not null and not is_odd,
        false) as fit
from named n left join required r on r.type = n.type;
