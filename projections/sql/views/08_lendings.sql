-- Who had a sandbox that was lent, a row a lending (docs/sandboxes.md). ended_by: given_back, taken (by its owner), lent (to another), lost,
-- destroyed; null while it lasts. right_number grows with each lending of a machine, which is `key`; owner_actor and owner_key asked for that.
create or replace view lendings as
with changes as (
    select
        *, case type
            when 'sandbox_lent.v1' then 'lent' when 'sandbox_lost.v1' then 'lost' when 'sandbox_destroyed.v1' then 'destroyed'
            else case when coalesce((data->>'$.is_taken')::boolean, false) then 'taken' else 'given_back' end
        end as what
    from events where type in ('sandbox_lent.v1', 'sandbox_given_back.v1', 'sandbox_lost.v1', 'sandbox_destroyed.v1')
), followed as (
    select
        *, lead(recorded_at) over machine as ended_at, lead(what) over machine as ended_by
    from changes window machine as (partition by shard, run_id, rollout_id, attempt, key order by seq)
)
select
    f.run_id, f.rollout_id, f.attempt, f.key, q.actor as owner_actor, q.key as owner_key, f.data->>'$.borrower.actor' as borrower_actor,
    f.data->>'$.borrower.key' as borrower_key, (f.data->>'$.right')::integer as right_number, f.recorded_at as lent_at, f.ended_at, f.ended_by,
    f.request_id, f.shard, f.seq
from followed f left join events q on q.run_id = f.run_id and q.event_id = f.request_id
where f.what = 'lent';
