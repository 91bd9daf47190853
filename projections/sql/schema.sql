-- Tables of the projection. Insert-only but for the cursor; everything else is a view (sql/views).
-- Times are UTC without a zone. `shard` and `seq` are an event's place in the log, its only order.

create table projection_meta (version integer not null);

-- What has been taken in: every event of `shard` up to `seq`. `generation` tells one life of the stream from another.
create table projection_cursor (shard integer primary key, seq bigint not null, generation varchar not null);

-- Stored bytes that are no event this version knows.
create table quarantine (shard integer not null, seq bigint not null, subject varchar, body varchar, reason varchar);

create table events (
    shard integer not null, seq bigint not null, recorded_at timestamp not null, type varchar not null, kind varchar not null,
    run_id varchar not null, rollout_id varchar not null, attempt integer not null, actor varchar not null, key varchar not null,
    epoch bigint not null, ordinal integer not null, event_id varchar not null, causation_id varchar,
    place varchar, to_kind varchar, request_id varchar, data json not null
);

-- The tasks of a run in the order of its plan, from the blob that run_started names.
create table planned_tasks (run_id varchar not null, position integer not null, task_index integer not null, task_id varchar not null);

create table run_requested (
    shard integer, seq bigint, recorded_at timestamp, run_id varchar, event_id varchar,
    config json, config_digest varchar not null, output_dir varchar not null, versions json, num_repeats integer, max_attempts integer
);
create table run_started (
    shard integer, seq bigint, recorded_at timestamp, run_id varchar, event_id varchar,
    plan_sha256 varchar not null, tasks integer not null, planned integer not null, shards integer not null, taskset_digest varchar not null, model varchar not null
);
-- change: paused, resumed, cancelled.
create table run_changes (
    shard integer, seq bigint, recorded_at timestamp, run_id varchar, event_id varchar,
    change varchar not null, pause_kind varchar, reason varchar not null, request_id varchar
);
create table run_finished (
    shard integer, seq bigint, recorded_at timestamp, run_id varchar, event_id varchar,
    state varchar not null, planned integer not null, scored integer not null, failed integer not null, masked integer not null, missing integer not null,
    failure_kind varchar, failure_message varchar
);
create table session_requested (
    shard integer, seq bigint, recorded_at timestamp, run_id varchar, rollout_id varchar, attempt integer, event_id varchar,
    task_id varchar not null, repeat integer not null, awaits_input_s double, follow_ups integer not null
);
-- state: closed, failed.
create table session_finished (
    shard integer, seq bigint, recorded_at timestamp, run_id varchar, rollout_id varchar, attempt integer, event_id varchar, request_id varchar not null,
    state varchar not null, answer varchar, stop_reason varchar, turns integer,
    failure_kind varchar, failure_message varchar, failure_stage varchar,
    check (case state when 'closed' then turns is not null else failure_kind is not null and failure_message is not null end)
);
create table rollout_finished (
    shard integer, seq bigint, recorded_at timestamp, run_id varchar, rollout_id varchar, attempt integer, event_id varchar,
    state varchar not null, reward double check (isfinite(reward)), failure_kind varchar, failure_message varchar, failure_stage varchar, retry_at timestamp
);
-- state: issued, failed.
create table verdicts (
    shard integer, seq bigint, recorded_at timestamp, run_id varchar, rollout_id varchar, attempt integer, event_id varchar, request_id varchar not null,
    state varchar not null, reward double check (isfinite(reward)), components json, failure_reason varchar, evidence_digest varchar, verifier_version varchar,
    failure_kind varchar, failure_message varchar, graded varchar,
    check (case state when 'issued' then reward is not null else failure_kind is not null and failure_message is not null end)
);
create table model_call_requested (
    shard integer, seq bigint, recorded_at timestamp, run_id varchar, rollout_id varchar, attempt integer, key varchar, event_id varchar,
    turn integer not null, tries integer not null, dialect varchar, parent_id varchar, activation integer not null, launch integer not null
);
-- A recorded answer that a program was given again, in its launch of this number: the call_id is the answered call's.
create table model_call_recalled (
    shard integer, seq bigint, recorded_at timestamp, run_id varchar, rollout_id varchar, attempt integer, key varchar, event_id varchar,
    call_id varchar not null, turn integer not null, activation integer not null, launch integer not null
);
-- state: completed, failed, lost. prompt_tokens and generated_tokens count ids that the backend gave, null where it gave none.
create table model_call_answered (
    shard integer, seq bigint, recorded_at timestamp, run_id varchar, rollout_id varchar, attempt integer, key varchar, event_id varchar,
    request_id varchar not null, state varchar not null, turn integer not null, stop_reason varchar,
    input_tokens bigint, output_tokens bigint, cached_tokens bigint, reasoning_tokens bigint,
    duration_s double check (isfinite(duration_s)), failure_kind varchar, failure_message varchar, retry_in_s double check (isfinite(retry_in_s)),
    first_token_s double check (isfinite(first_token_s)), queue_s double check (isfinite(queue_s)), cost_usd double check (isfinite(cost_usd)),
    served_model varchar, prompt_tokens bigint, generated_tokens bigint, has_tokens boolean, untrainable varchar,
    check (case state when 'completed' then duration_s is not null and stop_reason is not null when 'failed' then failure_kind is not null else true end)
);
create table tool_call_requested (
    shard integer, seq bigint, recorded_at timestamp, run_id varchar, rollout_id varchar, attempt integer, key varchar, event_id varchar,
    call_id varchar not null, turn integer not null, call_index integer not null, tool varchar not null, tries integer not null,
    number integer not null
);
-- state: completed, failed, lost.
create table tool_call_answered (
    shard integer, seq bigint, recorded_at timestamp, run_id varchar, rollout_id varchar, attempt integer, key varchar, event_id varchar,
    request_id varchar not null, state varchar not null, exit_code integer, output_bytes bigint, truncated boolean, ended_by varchar,
    duration_s double check (isfinite(duration_s)), failure_kind varchar, failure_message varchar,
    check (case state when 'completed' then output_bytes is not null and duration_s is not null when 'failed' then failure_kind is not null else true end)
);
-- Each tool that an agent's own program told that it called, once for each time that it was told.
create table program_tool_calls (
    shard integer, seq bigint, recorded_at timestamp, run_id varchar, rollout_id varchar, attempt integer, event_id varchar,
    launch_id varchar, call_id varchar not null
);
-- state: created, failed, lost, destroyed.
create table sandbox_changes (
    shard integer, seq bigint, recorded_at timestamp, run_id varchar, rollout_id varchar, attempt integer, key varchar, event_id varchar,
    request_id varchar, state varchar not null, place varchar, provider varchar, failure_kind varchar, reason varchar, label varchar, is_warm boolean
);
-- state: saved, failed.
create table checkpoint_changes (
    shard integer, seq bigint, recorded_at timestamp, run_id varchar, rollout_id varchar, attempt integer, key varchar, event_id varchar,
    request_id varchar not null, state varchar not null, snapshot varchar, files bigint, bytes bigint, stored_bytes bigint, left_out bigint,
    duration_s double, paused_s double, failure_kind varchar, failure_message varchar
);
create table claims (
    shard integer, seq bigint, recorded_at timestamp, run_id varchar, rollout_id varchar, attempt integer, actor varchar, key varchar,
    event_id varchar, worker varchar not null, request_id varchar
);
