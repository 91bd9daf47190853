-- What sandboxes tried to reach, a row a connection (docs/sandboxes.md); of one that died with its process nothing is known.
create or replace view network_attempts as
select
    run_id, rollout_id, attempt, key, recorded_at, tried->>'$.host' as host, (tried->>'$.port')::integer as port, tried->>'$.address' as address,
    (tried->>'$.is_allowed')::boolean as is_allowed, coalesce(tried->>'$.reason', '') as reason, coalesce((tried->>'$.sent_bytes')::bigint, 0) as sent_bytes,
    coalesce((tried->>'$.received_bytes')::bigint, 0) as received_bytes, coalesce((tried->>'$.duration_s')::double, 0) as duration_s,
    coalesce(tried->>'$.phase', '') as phase, shard, seq
from (
    select *, unnest(from_json(data->'$.network', '["json"]')) as tried
    from events where type in ('sandbox_destroyed.v1', 'sandbox_lost.v1', 'sandbox_installed.v1', 'grading_done.v1') and (data->'$.network') is not null
);
