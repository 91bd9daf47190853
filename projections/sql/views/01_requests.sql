-- Requests and what answered them. A claim, the wish to try a parked request again, a model's answer that came too late, and a checkpoint
-- that follows a command name a request without answering it.

create or replace view requests as
select
    shard, seq, recorded_at, run_id, rollout_id, attempt, actor, key, event_id, type, to_kind, place
from events where ends_with(kind, '_requested');

create or replace view answers as
select shard, seq, recorded_at, run_id, rollout_id, attempt, actor, key, event_id, type, request_id
from events where request_id is not null and type not in ('claim.v1', 'model_call_late.v1', 'checkpoint_saved.v1', 'checkpoint_failed.v1')
    and not ends_with(kind, '_request_redriven')
union all
select a.shard, a.seq, a.recorded_at, a.run_id, a.rollout_id, a.attempt, a.actor, a.key, a.event_id, a.type, a.request_id
from events a semi join events q on q.type = 'checkpoint_requested.v1' and q.run_id = a.run_id and q.event_id = a.request_id
where a.type in ('checkpoint_saved.v1', 'checkpoint_failed.v1');

create or replace view parked as
select
    shard, seq, recorded_at, recorded_at as "at", run_id, rollout_id, attempt, actor, key, request_id,
    data->>'$.request_type' as request_type, data->>'$.failure.kind' as failure_kind, data->>'$.failure.message' as failure_message
from events where type = 'request_parked.v1';

-- Parked requests that somebody asked to have tried again: being parked is then not their answer.
create or replace view redriven as
select distinct run_id, request_id from events where ends_with(kind, '_request_redriven');

-- Requests that nothing has answered yet.
create or replace view open_requests as
select * from requests anti join (
    select a.run_id, a.request_id from answers a left join redriven d on d.run_id = a.run_id and d.request_id = a.request_id
    where d.run_id is null or a.type != 'request_parked.v1'
) a on a.run_id = requests.run_id and a.request_id = requests.event_id;
