"""What each measure is called, what it should be, and what peers do on the same kind of machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Goal:
    """`limit` is at least or at most (`is_floor`) reached; None: shown beside another measure. `peer` is text."""

    limit: float | None = None
    is_floor: bool = True
    peer: str = ""

    def is_met(self, value: float) -> bool | None:
        """Say whether the goal is reached; None if there is none."""
        if self.limit is None:
            return None
        return value >= self.limit if self.is_floor else value <= self.limit

    @property
    def text(self) -> str:
        """Return the goal as it stands in the table."""
        return "" if self.limit is None else f"{'>=' if self.is_floor else '<='} {self.limit:g}"


def at_least(limit: float, peer: str = "") -> Goal:
    """Return a floor."""
    return Goal(limit, peer=peer)


def at_most(limit: float, peer: str = "") -> Goal:
    """Return a ceiling."""
    return Goal(limit, is_floor=False, peer=peer)


GOALS: Final = {
    "append_ratio": at_least(0.7),
    "append_ratio_same_client": Goal(),
    "append_per_s": Goal(),
    "unfenced_per_s": Goal(),
    "bare_per_s": Goal(),
    "eventlog_per_s": Goal(),
    "rollouts_per_s": at_least(300, "NeMo Gym 82, verifiers 43, inspect-ai 31"),
    "rollouts_per_s_bubblewrap": at_least(60, "peers were measured without a sandbox"),
    "rollouts_per_s_200ms_256": at_least(400, "NeMo Gym 74, verifiers 42"),
    "rollouts_per_s_200ms_256_constant": at_least(300, "NeMo Gym 74, verifiers 42"),
    "rollouts_per_s_200ms_2000": Goal(),
    "cpu_ms_per_rollout": at_most(5, "NeMo Gym 22 to 25; with start-up: verifiers 31 to 38, inspect-ai 38 to 48"),
    "log_bytes_per_rollout": at_most(12_000),
    "log_events_per_rollout": Goal(),
    "disk_bytes_per_rollout_3000": Goal(
        peer="NeMo Gym 2,700 (no record of calls), verifiers 4,300, inspect-ai 3,500 compressed"
    ),
    "projection_bytes_per_rollout_3000": Goal(),
    "rss_mb_2000_in_flight": at_most(600, "NeMo Gym 1,850 at 256, verifiers 280 at 256"),
    "rss_mb_idle": Goal(peer="NeMo Gym 1,460"),
    "cold_start_s": at_most(2, "NeMo Gym 14.8, verifiers 4.5, inspect-ai 4"),
    "cold_run_finished_s": Goal(),
    "cold_command_s": Goal(),
    "answers_asked_again": at_most(0, "none resumes in mid-rollout"),
    "calls_repaid": at_most(64),
    "calls_in_flight_at_kill": Goal(),
    "calls_wasted": Goal(peer="NeMo Gym 109, verifiers 649, inspect-ai 41 (collector killed only)"),
    "calls_of_later_attempts": Goal(),
    "calls_of_extra_turns": Goal(),
    "resume_s": Goal(),
    "takeover_s": at_most(4, "not measured; NeMo Gym hangs when its agent server is killed"),
    "takeover_run_s": Goal(),
    "takeover_rollout_s": Goal(),
    "harness_start_ratio": at_most(1.15),
    "crowd_codex_at_once": at_least(64),
    "crowd_codex_lost": at_most(0),
    "crowd_codex_mb": at_most(16_000),
    "crowd_pi_at_once": at_least(64),
    "crowd_pi_lost": at_most(0),
    "crowd_pi_mb": at_most(16_000),
    "held_activations": at_least(2_000),
    "held_redeliveries_due": Goal(),
    "held_begun_again": at_most(0),
    "held_asked_again": at_most(0),
    "held_core_share": Goal(),
    "held_mb": Goal(),
    **{
        f"harness_{what}_{name}": Goal()
        for name in ("codex", "pi")
        for what in ("start_ratio", "start_ms", "bare_start_ms")
    },
    "projector_events_per_s": at_least(20_000),
    "projector_bare_events_per_s": Goal(),
    "projector_ratio": at_least(0.5),
    "projector_lag_s": at_most(2),
    "gateway_ratio": at_least(0.6),
    "gateway_ratio_same_client": Goal(),
    "gateway_cpu_ms_per_call": Goal(),
    "gateway_bare_cpu_ms_per_call": Goal(),
    "gateway_calls_per_core_s": Goal(),
    "gateway_added_p50_ms": at_most(2),
    "gateway_added_p99_ms": Goal(),
    "gateway_first_token_added_p50_ms": at_most(2),
    "gateway_first_token_added_p99_ms": Goal(),
    "gateway_bare_added_p50_ms": Goal(),
    "gateway_bare_first_token_added_p50_ms": Goal(),
    "gateway_bare_added_p50_ms_1": Goal(),
    "gateway_bare_first_token_added_p50_ms_1": Goal(),
    "gateway_added_p50_ms_1": Goal(),
    "gateway_added_p99_ms_1": Goal(),
    "gateway_first_token_added_p50_ms_1": Goal(),
    "gateway_first_token_added_p99_ms_1": Goal(),
    "gateway_added_p50_ms_512": Goal(),
    "gateway_added_p99_ms_512": Goal(),
    "gateway_first_token_added_p50_ms_512": Goal(),
    "gateway_first_token_added_p99_ms_512": Goal(),
    "gateway_throughput_256_over_128": at_least(0.95),
    "gateway_throughput_512_over_128": at_least(0.95),
    "gateway_open_streams": at_least(2000),
    "gateway_open_streams_core_share": Goal(),
    "gateway_open_streams_mb": Goal(),
    "sandbox_create_ratio_bubblewrap": at_most(1.2),
    "sandbox_create_ms_bubblewrap": Goal(),
    "sandbox_bare_create_ms_bubblewrap": Goal(),
    "sandbox_create_ratio_docker": at_most(1.2),
    "sandbox_create_ms_docker": Goal(),
    "sandbox_bare_create_ms_docker": Goal(),
    "log_growth_200_over_100_turns": at_most(2.2),
    "sandbox_exec_ms": at_most(3),
    "sandbox_held_boxes": at_least(200),
    "sandbox_held_made_s": Goal(),
    "sandbox_held_all_run_s": Goal(),
    "sandbox_held_mib_each": Goal(),
    "sandbox_exec_standing_ms_bubblewrap": Goal(),
    "sandbox_put_mib_s_bubblewrap": Goal(),
    "sandbox_get_mib_s_bubblewrap": Goal(),
    "checkpoint_1000_files_s_bubblewrap": Goal(),
    "checkpoint_again_1000_files_s_bubblewrap": Goal(),
    "restore_1000_files_s_bubblewrap": Goal(),
    "checkpoint_200_mb_s_bubblewrap": Goal(),
    "checkpoint_again_200_mb_s_bubblewrap": Goal(),
    "restore_200_mb_s_bubblewrap": Goal(),
    "sandbox_exec_standing_ms_docker": Goal(),
    "sandbox_put_mib_s_docker": Goal(),
    "sandbox_get_mib_s_docker": Goal(),
    "sandbox_exec_fresh_ms_docker": Goal(),
    "sandbox_bare_put_mib_s_docker": Goal(),
    "sandbox_bare_get_mib_s_docker": Goal(),
    "checkpoint_1000_files_s_docker": Goal(),
    "checkpoint_again_1000_files_s_docker": Goal(),
    "restore_1000_files_s_docker": Goal(),
    "checkpoint_200_mb_s_docker": Goal(),
    "checkpoint_again_200_mb_s_docker": Goal(),
    "restore_200_mb_s_docker": Goal(),
}
