"""What is asked of a model before a run starts: every address, the key, the name; each problem says what, where and what to do."""

from __future__ import annotations

import asyncio
import hashlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from gym_bus.cli import model_checks
from gym_bus.cli.eval import group
from gym_bus.cli.eval_run import resolve
from gym_bus.cli.flags import flags_of
from gym_bus.cli.model_checks import check_endpoint
from gym_bus.errors import BadConfig
from providers.dialects.catalog import DIALECTS
from schemas.config import AnthropicModel, AzureModel, HttpModel, OpenAIModel, SwitchyardModel, VllmModel
from tests.support.served_doubles import KEY, MODEL, Double
from tests.support.served_doubles import problem as problem_answer
from tests.support.served_kinds import BY_NAME, KINDS, Kind
from tests.support.upstream import served

DEAD = "http://127.0.0.1:9"


async def check(config: HttpModel, key: str | None = KEY) -> str:
    """Return what is wrong; empty if nothing is."""
    try:
        await asyncio.to_thread(check_endpoint, config, key)
    except BadConfig as error:
        return str(error)
    return ""


@pytest.mark.parametrize("kind", KINDS, ids=[k.name for k in KINDS])
async def test_a_server_that_is_there_passes_and_what_is_wrong_is_said(kind: Kind) -> None:
    """Nobody there, a refused key, no such model: with the address, and without the key."""
    double = kind.double(kind.dialect)
    async with served(double.app) as url:
        config = kind.config_at(url)
        assert await check(config) == ""
        refused = await check(config, "sk-wrong")
        assert ("refused the key (401)" in refused, url in refused, "--model-api-key" in refused) == (True, True, True)
        assert "sk-wrong" not in refused
        unknown = await check(config.model_copy(update={"policy_model_name": "nobody"}))
        assert "'nobody'" in unknown
        assert url in unknown
        assert "--model" in unknown
    gone = await check(config)
    assert "cannot be reached" in gone
    assert url in gone


async def test_every_address_is_asked() -> None:
    """The ones that are wrong are named, each on its line."""
    good, bad = BY_NAME["vllm"].double("chat"), BY_NAME["vllm"].double("chat")
    bad.models = ["another", *(f"m{n}" for n in range(20))]
    async with served(good.app) as one, served(bad.app) as two:
        problem = await check(VllmModel(policy_base_url=(one, two, DEAD), policy_model_name=MODEL))
        lines = problem.split("\n")
        assert len(lines) == 2
        assert f"{two}/v1/models has no model 'up'" in lines[0]
        assert "there are another, m0, m1, m2, m3 and 16 more" in lines[0]
        assert "cannot be reached" in lines[1]


@pytest.mark.alone
async def test_many_addresses_that_are_silent_take_no_longer_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_checks, "ENDPOINT_TIMEOUT_S", 0.3)

    class Silent(Double):
        async def _any(self, request: Request) -> Response:
            await asyncio.sleep(3)
            return Response()

    async with served(Silent(BY_NAME["vllm"].double("chat").dialect).app) as url:
        began = time.monotonic()
        problem = await check(
            VllmModel(policy_base_url=tuple(f"{url}/{n}" for n in range(12)), policy_model_name=MODEL)
        )
        assert time.monotonic() - began < 2.5
        assert problem.count("no answer from") == 12


async def test_a_file_of_addresses_is_waited_for_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An address in it may be dead, all of them may not; what is configured besides is good meanwhile."""
    monkeypatch.setattr(model_checks, "FILE_PATIENCE_S", 0.3)
    file, double = tmp_path / "endpoints", BY_NAME["vllm"].double("chat")
    config = VllmModel(endpoint_file=str(file), policy_model_name=MODEL)
    async with served(double.app) as url:
        missing = await check(config)
        assert f"model.endpoint_file {file} does not exist" in missing
        file.write_text("\n")
        assert f"model.endpoint_file {file} is empty" in await check(config)
        checking = asyncio.create_task(check(config))
        await asyncio.sleep(0.1)
        file.write_text(f"{url}\n{DEAD}\n")
        assert await checking == ""
        file.write_text(DEAD)
        assert "and endpoint_file right?" in await check(config)
        file.write_text("")
        assert await check(config.model_copy(update={"policy_base_url": url})) == ""


async def test_azures_mistakes_are_told_apart() -> None:
    """Another version or path, and a model's name in place of its deployment's."""
    double = BY_NAME["azure-chat-dated"].double("chat")
    async with served(double.app) as url:
        right = AzureModel(policy_base_url=url, policy_model_name=MODEL, api_version="2024-10-21")
        assert await check(right) == ""
        wrong = await check(right.model_copy(update={"api_version": "2020-01-01"}))
        assert "model.api_version (2020-01-01)" in wrong
        assert f"nothing of this kind is at {url}/openai/" in wrong
        assert "knows no" not in wrong
        assert "has no deployment 'gpt-x'" in await check(right.model_copy(update={"policy_model_name": "gpt-x"}))
        assert double.bodies
        assert all(list(body) == ["model"] for body in double.bodies), "a deployment is asked for nothing"


@pytest.mark.parametrize(
    ("listed", "one", "is_fine"),
    [
        (["openai/*", "x"], None, False),
        (["up*"], None, True),
        (["x"], JSONResponse({"detail": "Not Found"}, 404), False),
        (["x"], JSONResponse({"id": "up"}), True),
        (["x"], JSONResponse({"error": {"message": "The model 'up' does not exist"}}, 404), False),
        ([], None, True),
    ],
)
async def test_a_list_that_need_not_be_whole_is_not_believed(listed: list[str], one: Any, is_fine: bool) -> None:
    """Proxies have patterns, and some servers take names that they do not list: those are asked for the one."""

    class Listing(Double):
        def _listed(self, path: str) -> Response:
            if path.endswith("/models") or one is None:
                return super()._listed(path)
            answer: Response = one
            return answer

    double = Listing(BY_NAME["litellm-chat"].double("chat").dialect)
    double.models = listed
    async with served(double.app) as url:
        problem = await check(BY_NAME["litellm-chat"].config_at(url))
        assert (problem == "") == is_fine, problem


NAMELESS = {"error": {"message": "messages: field required"}}


def openai(url: str, **more: Any) -> OpenAIModel:
    return OpenAIModel(**{"policy_base_url": url, "policy_model_name": MODEL, **more})


@dataclass
class Server(Double):
    """Chat Completions below `/v1` and nothing else; `empty` is what a call without a question is answered with, by its model."""

    dialect: Any = DIALECTS["chat"]
    listed: Response | None = None
    empty: dict[str | None, Response] = field(default_factory=dict)

    def _listed(self, path: str) -> Response:
        if path != "/v1/models":
            return JSONResponse({"detail": "Not Found"}, 404)
        return self.listed or super()._listed(path)

    def refused_body(self, request: Request, body: dict[str, Any]) -> Response | None:
        """Return what an unfit request is answered with."""
        if request.url.path != "/v1/chat/completions":
            return JSONResponse({"detail": "Not Found"}, 404)
        assert list(body) == ["model"], "nothing is asked that could cost something"
        return self.empty.get(body["model"], self.empty.get(None, JSONResponse(NAMELESS, 422)))


@pytest.mark.parametrize(
    ("base", "more", "said"),
    [
        ("", {}, ("nothing of this kind is at", "/chat/completions (404)", "is `/v1` missing, or is it another API")),
        ("/v1/chat/completions", {}, ("leave /chat/completions off --model-url",)),
        ("/v1/", {"api": "responses"}, ("/v1/responses (404)", "'responses'", "is it another API")),
    ],
)
async def test_an_address_at_which_calls_would_find_nothing(base: str, more: Any, said: tuple[str, ...]) -> None:
    """The path of the calls is asked, whether or not there is a list of models."""
    async with served(Server().app) as url:
        assert await check(openai(f"{url}/v1")) == ""
        problem = await check(openai(url + base, **more))
        assert all(text in problem for text in said), problem


async def test_another_api_than_the_servers() -> None:
    """The list of models is there for all of them; what calls are posted to is not."""
    async with served(Server().app) as url:
        problem = await check(AnthropicModel(policy_base_url=url, policy_model_name=MODEL))
        assert f"nothing of this kind is at {url}/v1/messages (404)" in problem
        assert "is it another API" in problem
        assert "`/v1`" not in problem, "it is added to such an address"


@pytest.mark.parametrize(
    ("listed", "empty", "said"),
    [
        (Response(status_code=404), JSONResponse(NAMELESS, 422), ""),
        (Response(status_code=404), JSONResponse(NAMELESS, 400), ""),
        (Response(status_code=503), Response(status_code=500), ""),
        (JSONResponse({"status": "ok"}), JSONResponse(NAMELESS, 400), ""),
        (JSONResponse({"status": "ok"}), Response(status_code=403), "refused the key (403)"),
        (Response(status_code=404), Response(status_code=405), "nothing of this kind is at"),
        (Response(status_code=404), problem_answer(404, 'model "up" not found'), "has no model 'up'"),
    ],
)
async def test_without_a_list_the_path_of_the_calls_is_asked(listed: Response, empty: Response, said: str) -> None:
    """Whatever refuses the question for what it lacks takes such calls."""
    double = Server(listed=listed, empty={None: empty})
    async with served(double.app) as url:
        problem = await check(openai(f"{url}/v1"))
        assert said in problem if said else problem == "", problem


@pytest.mark.parametrize(
    ("empty", "is_fine"),
    [
        ({}, False),
        ({None: problem_answer(400, "no such model"), MODEL: JSONResponse(NAMELESS, 400)}, True),
        ({None: problem_answer(404, "no such model"), MODEL: JSONResponse(NAMELESS, 400)}, True),
        ({None: problem_answer(404, "no such model")}, False),
        ({None: problem_answer(500, "oops")}, False),
    ],
)
async def test_a_name_that_is_not_listed_needs_a_server_that_tells_it_apart(empty: Any, is_fine: bool) -> None:
    """An openai server that takes any name proves nothing by taking this one: its list counts."""
    double = Server(empty=empty, models=["a", "b", "c", "d", "e", "f"])
    async with served(double.app) as url:
        problem = await check(openai(f"{url}/v1"))
        assert (problem == "") == is_fine, problem
        if not is_fine:
            assert f"{url}/v1/models has no model 'up'" in problem
            assert problem.endswith("there are a, b, c, d, e and 1 more")


# -- flags and files ------------------------------------------------------------------------------------------------------------


def options(**given: Any) -> dict[str, Any]:
    return {"reasoning_gym": ("chain_sum",), **given}


@pytest.mark.parametrize(
    ("type_", "variable"),
    [("azure", "AZURE_OPENAI_API_KEY"), ("vllm", "VLLM_API_KEY"), ("litellm", "LITELLM_API_KEY"),
     ("switchyard", "SWITCHYARD_API_KEY"), ("anthropic", "ANTHROPIC_API_KEY"), (None, "OPENAI_API_KEY")],
)  # fmt: skip
def test_a_flag_says_what_kind_of_server_it_is(type_: str | None, variable: str) -> None:
    """Each has a variable of its own for the key."""
    config, key = resolve(options(model="m", model_url="http://h", model_type=type_), {variable: "k"})
    assert (config.model.type, key) == (type_ or "openai", "k")
    assert config.model.addresses == ("http://h",)  # type: ignore[union-attr]


def test_a_kind_alone_needs_the_rest_from_somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of addresses will do, and Anthropic has an address of its own; paths are made absolute."""
    with pytest.raises(BadConfig, match="go together"):
        resolve(options(model="m", model_type="vllm"), {})
    monkeypatch.chdir(tmp_path)
    config, _ = resolve(options(model="m", model_type="vllm", overrides=("model.endpoint_file=ends",)), {})
    assert isinstance(config.model, VllmModel)
    assert (config.model.endpoint_file, config.model.addresses) == (str(tmp_path / "ends"), ())
    config, _ = resolve(options(model="m", model_type="anthropic"), {})
    assert config.model.addresses == ("https://api.anthropic.com",)  # type: ignore[union-attr]
    config, _ = resolve(
        options(model="m", model_type="vllm", overrides=("model.policy_base_url=[http://a,http://b]",)), {}
    )
    assert config.model.addresses == ("http://a", "http://b")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        (("model.type=vllm", "model.policy_model_name=m"), "policy_base_url has to be set"),
        (("model.type=vllm", "model.policy_model_name=m", "model.policy_base_url=[]"), "policy_base_url has to be set"),
        (("model.type=vllm", "model.policy_model_name=m", "model.policy_base_url=x", "model.sampling_overrides={heat: 1}"),
         "sampling_overrides"),
        (("model.type=vllm", "model.policy_model_name=m", "model.policy_base_url=x", "model.sampling_overrides={top_p: high}"),
         "want a number"),
        (("model.type=anthropic", "model.policy_model_name=m", "model.sampling_overrides={seed: 1}"), "seed cannot be said"),
        (("model.type=azure", "model.policy_model_name=m", "model.policy_base_url=x", "model.api=messages"), "model.api"),
        (("model.type=azure", "model.policy_model_name=m", "model.policy_base_url=x", "model.api_version=a&b"), "api_version"),
        (("model.type=vllm", "model.policy_model_name=m", "model.policy_base_url=x", "model.max_concurrent_requests=0"),
         "max_concurrent_requests"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused(overrides: tuple[str, ...], problem: str) -> None:
    with pytest.raises(BadConfig, match=problem):
        resolve(options(overrides=overrides), {})


def test_several_addresses_are_given_one_by_one() -> None:
    """One stays a text, so that configurations keep their digests; a comma is no way to say two."""
    for given, wanted in (("http://a", "http://a"), (("http://a",), "http://a"), ((), None)):
        model = flags_of({"model": "m", "model_url": given})["model"]
        assert model.get("policy_base_url") == wanted
    config, _ = resolve(options(model="m", model_url=("http://a/v1", "http://b/v1")), {})
    assert config.model.addresses == ("http://a/v1", "http://b/v1")  # type: ignore[union-attr]
    with pytest.raises(BadConfig, match="more than one address: give the option once for each"):
        resolve(options(model="m", model_url=("http://a/v1,http://b/v1",)), {})


def test_a_kind_of_server_is_not_said_twice() -> None:
    """An override that contradicts the flag is refused; without the flag it says what the address is of."""
    with pytest.raises(BadConfig, match=r"--model-type vllm and model\.type=vlm say two things"):
        resolve(options(model="m", model_url="http://h", model_type="vllm", overrides=("model.type=vlm",)), {})
    with pytest.raises(BadConfig, match="no such type 'vlm'"):
        resolve(options(model="m", model_url="http://h", overrides=("model.type=vlm",)), {})
    for type_ in ("vllm", None):
        config, _ = resolve(
            options(model="m", model_url="http://h", model_type=type_, overrides=("model.type=vllm",)), {}
        )
        assert config.model.type == "vllm"


@pytest.mark.parametrize(
    ("name", "said"),
    [("temprature", "did you mean temperature?"), ("max_tokens", "did you mean max_output_tokens?"),
     ("max_completion_tokens", "did you mean max_output_tokens?"), ("zzz", "known here are temperature, top_p")],
)  # fmt: skip
def test_an_unknown_parameter_is_named_with_a_guess(name: str, said: str) -> None:
    with pytest.raises(BadConfig) as caught:
        resolve(options(model="m", model_url="http://h", overrides=(f"model.sampling_overrides={{{name}: 1}}",)), {})
    assert f"model.sampling_overrides.{name}: unknown key; {said}" in str(caught.value)


def test_a_deployments_digest_goes_into_the_configuration(tmp_path: Path) -> None:
    """Of the file's bytes; a route that it does not have, and a file that is none, are found before anything starts."""
    file = tmp_path / "routes.toml"
    file.write_text('schema_version = 1\n[routes.a]\nid = "fleet/cheap"\n[routes.b]\nid = "fleet/strong"\n')
    digest = hashlib.sha256(file.read_bytes()).hexdigest()

    def of(route: str, **more: str) -> SwitchyardModel:
        said = {"deployment": str(file), **more}
        overrides = tuple(f"model.{name}={value}" for name, value in said.items())
        config, _ = resolve(
            options(model=route, model_url="http://h", model_type="switchyard", overrides=overrides), {}
        )
        assert isinstance(config.model, SwitchyardModel)
        return config.model

    assert {of(route).routing_digest for route in ("fleet/cheap", "fleet/strong")} == {digest}
    assert of("fleet/cheap", routing_digest=digest).routing_digest == digest
    with pytest.raises(BadConfig, match="no route 'a'; there are fleet/cheap, fleet/strong"):
        of("a")
    with pytest.raises(BadConfig, match=f"has the digest {digest}"):
        of("fleet/cheap", routing_digest="ab" * 32)
    with pytest.raises(BadConfig, match="cannot be read"):
        of("fleet/cheap", deployment=str(tmp_path / "none"))
    for text, problem in (("[routes", "is no TOML"), ("routes = 3", "has no routes"), ("", "has no routes")):
        file.write_text(text)
        with pytest.raises(BadConfig, match=problem):
            of("fleet/cheap")


def test_help_names_the_kinds() -> None:
    shown = CliRunner().invoke(group, ["run", "--help"]).output
    assert "openai|anthropic|azure|vllm|litellm|switchyard" in shown.replace("\n", "").replace(" ", "")
    assert "--model-type azure" in shown
    for text in ("KEY=VALUE", "model.type=local", "model.type=replay", "budget.rollout.model_calls=3"):
        assert text in shown


@contextmanager
def backend(status: int, body: str) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode())

        def do_POST(self) -> None:
            """Hang up on a call without a question, as clumsy servers do."""
            self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize(
    ("status", "body", "problem"),
    [
        (200, '{"data": []}', None),
        (404, "", None),
        (429, "slow down", None),
        (503, "loading", None),
        (401, "bad key sk-made-up", "refused the key"),
        (403, "no", "refused the key"),
        (200, "<html>hello</html>", "is no API of a model"),
        (400, "what?", "answered 400"),
    ],
)
def test_the_backend_is_asked_once(status: int, body: str, problem: str | None) -> None:
    """A busy or a clumsy one may start a run, a wrong one may not; the key is never shown."""
    with backend(status, body) as url:
        model = OpenAIModel(policy_base_url=url, policy_model_name="m")
        if problem is None:
            model_checks.check_endpoint(model, "sk-made-up")
            return
        with pytest.raises(BadConfig, match=problem) as caught:
            model_checks.check_endpoint(model, "sk-made-up")
        assert "sk-made-up" not in str(caught.value)


def serve_slowly(write: Callable[[socket.socket], None]) -> tuple[str, threading.Thread]:
    """Serve one connection with `write`; return the address."""
    listening = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"

    def serve() -> None:
        with listening, listening.accept()[0] as connection, suppress(OSError):
            connection.recv(65_536)
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n")
            write(connection)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return url, thread


@pytest.mark.alone
def test_a_list_of_models_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dripping or endless: an error within the deadline, whatever single reads take, and not the machine's memory."""
    monkeypatch.setattr(model_checks, "ENDPOINT_TIMEOUT_S", 0.5)

    def drip(connection: socket.socket) -> None:
        for _ in range(40):
            connection.sendall(b" ")
            time.sleep(0.1)

    def flood(connection: socket.socket) -> None:
        while True:
            connection.sendall(b" " * 65_536)

    for write, said in ((drip, "no answer"), (flood, "more than")):
        url, thread = serve_slowly(write)
        began = time.monotonic()
        with pytest.raises(BadConfig, match=said):
            model_checks.check_endpoint(OpenAIModel(policy_base_url=url, policy_model_name="m"), None)
        assert time.monotonic() - began < 3
        thread.join(10)


def test_a_list_of_models_nested_without_end_is_no_list() -> None:
    with backend(200, "[" * 100_000 + "]" * 100_000) as url, pytest.raises(BadConfig, match="is no API"):
        model_checks.check_endpoint(OpenAIModel(policy_base_url=url, policy_model_name="m"), None)


def test_nobody_at_the_address_is_said_with_the_address() -> None:
    """Not a timeout of minutes: one line with the URL."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
    with pytest.raises(BadConfig, match="cannot be reached") as caught:
        model_checks.check_endpoint(OpenAIModel(policy_base_url=url, policy_model_name="m"), None)
    assert url in str(caught.value)
