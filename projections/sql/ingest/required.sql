-- The types of this version, and what the typed tables take from the data of each: path and type, `?` where it may be absent. A type that
-- is not here (an old version) goes through the codec.
create or replace temp table required as
select type, case when fields = '' then [] else string_split(fields, ', ') end as fields from (values
    ('claim.v1', 'worker text'),
    ('snapshot.v1', ''),
    ('request_parked.v1', ''),
    ('run_requested.v1', 'config_digest text, output_dir text'),
    ('run_cancel_requested.v1', ''),
    ('run_resume_requested.v1', ''),
    ('run_started.v1', 'plan.sha256 text, tasks integer, planned integer, shards integer, taskset_digest text, model text'),
    ('run_paused.v1', 'reason text'),
    ('run_resumed.v1', 'reason text'),
    ('run_cancelled.v1', 'reason text'),
    ('run_finished.v1', 'state text, planned integer, scored integer, failed integer, masked integer, missing integer'),
    ('session_requested.v1', 'task.task_id text, repeat integer'),
    ('session_closed.v1', 'request_id text, evidence.turns integer'),
    ('session_failed.v1', 'request_id text, failure.kind text, failure.message text, evidence.turns integer?'),
    ('verdict_requested.v1', ''),
    ('verdict_issued.v1', 'request_id text, reward double'),
    ('verdict_failed.v1', 'request_id text, failure.kind text, failure.message text, reward double?'),
    ('rollout_finished.v1', 'state text, reward double?, retry_at timestamp?'),
    ('model_call_requested.v1', 'turn integer, tries integer'),
    ('model_call_completed.v1', 'request_id text, turn integer, stop_reason text, duration_s double, retry_in_s double?, '
        || 'first_token_s double?, queue_s double?, cost_usd double?, tokens.shared bigint?, '
        || 'usage.input_tokens bigint?, usage.output_tokens bigint?, usage.cached_tokens bigint?, usage.reasoning_tokens bigint?'),
    ('model_call_failed.v1', 'request_id text, turn integer, failure.kind text, duration_s double?, retry_in_s double?, '
        || 'first_token_s double?, queue_s double?, cost_usd double?, tokens.shared bigint?'),
    ('model_call_lost.v1', 'request_id text, turn integer, duration_s double?, retry_in_s double?, '
        || 'first_token_s double?, queue_s double?, cost_usd double?, tokens.shared bigint?'),
    ('model_call_late.v1', ''),
    ('budget_exhausted.v1', ''),
    ('tool_call_requested.v1', 'call_id text, turn integer, index integer, tool text, tries integer?, number integer?'),
    ('tool_call_rejected.v1', ''),
    ('tool_call_completed.v1', 'request_id text, exit_code integer?, output_bytes bigint, truncated boolean?, duration_s double'),
    ('tool_call_failed.v1', 'request_id text, failure.kind text, exit_code integer?, output_bytes bigint?, duration_s double?'),
    ('tool_call_lost.v1', 'request_id text, exit_code integer?, output_bytes bigint?, duration_s double?'),
    ('sandbox_requested.v1', ''),
    ('sandbox_close_requested.v1', ''),
    ('sandbox_lend_requested.v1', ''),
    ('sandbox_give_back_requested.v1', ''),
    ('sandbox_lent.v1', 'request_id text, borrower.actor text, borrower.key text, right bigint'),
    ('sandbox_given_back.v1', 'request_id text, right bigint'),
    ('sandbox_request_refused.v1', ''),
    ('checkpoint_requested.v1', ''),
    ('grading_requested.v1', ''),
    ('grading_done.v1', ''),
    ('grading_failed.v1', ''),
    ('checkpoint_saved.v1', 'request_id text, snapshot.sha256 text, files bigint, bytes bigint, stored_bytes bigint, left_out bigint?, '
        || 'duration_s double, paused_s double?'),
    ('checkpoint_failed.v1', 'request_id text, failure.kind text, failure.message text, files bigint?, bytes bigint?, stored_bytes bigint?, '
        || 'left_out bigint?, duration_s double?, paused_s double?'),
    ('sandbox_created.v1', 'is_warm boolean?'),
    ('sandbox_failed.v1', ''),
    ('sandbox_lost.v1', ''),
    ('sandbox_destroyed.v1', ''),
    ('collector_request_redriven.v1', ''),
    ('harness_request_redriven.v1', ''),
    ('sandbox_request_redriven.v1', ''),
    ('verifier_request_redriven.v1', ''),
    ('activation_completed.v1', ''),
    ('activation_failed.v1', '')
) as t(type, fields);
