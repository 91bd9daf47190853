-- The events of a staged batch.
insert into events
select
    shard, seq, recorded_at, type, kind, p[4], p[5], attempt, p[6], p[7], epoch, ordinal, event_id, causation_id,
    case when p[8] = 'cmd' then p[10] end, case when p[8] = 'cmd' then p[9] end, json_extract_string(data, '$.request_id'), data
from staged where fit order by shard, seq;
