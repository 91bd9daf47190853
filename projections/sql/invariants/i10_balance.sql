-- I10, balance: of a rollout that is over, every sandbox that was created was destroyed or lost, and none was created twice.
with balance as (
    select
        run_id, rollout_id, key, count(*) filter (state = 'created') as created, count(*) filter (state = 'destroyed') as destroyed,
        count(distinct request_id) filter (state = 'destroyed') as requests,
        count(*) filter (state = 'lost') as lost
    from sandbox_changes group by run_id, rollout_id, key
)
select b.*
from balance b left join rollout_finished f on f.run_id = b.run_id and f.rollout_id = b.rollout_id and f.retry_at is null
where created > 1 or destroyed > requests or (f.run_id is not null and created > 0 and destroyed + lost = 0);
