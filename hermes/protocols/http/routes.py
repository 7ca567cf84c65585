"""The route table: every route of the HTTP surface, once. Capabilities, OpenAPI and the application read it."""

from __future__ import annotations

from hermes.protocols.http import (
    browser_control,
    catalogue,
    chat_completions,
    pages,
    responses,
    run_list,
    runs,
    schemas,
    session_chat,
    sessions,
    tree_routes,
)
from hermes.protocols.http.call import Route
from hermes.protocols.http.console_pages import console_routes

UNSUPPORTED = ("/v1/embeddings", "/v1/completions", "/v1/audio", "/v1/images", "/v1/files", "/v1/threads")
"""OpenAI endpoints that this server does not have, and says so."""

SERVER: tuple[Route, ...] = (
    Route("GET", "/health", catalogue.health, "Is the server up", "health", public=True),
    Route("GET", "/v1/health", catalogue.health, "Is the server up", public=True),
    Route("GET", "/health/detailed", catalogue.health_detailed, "Readiness, load and the live tree", "health_detailed"),
    Route("GET", "/metrics", catalogue.metrics, "Counters for Prometheus", page=True),
    Route("GET", "/v1/models", catalogue.models, "Model ids", "models", answer=schemas.ListAnswer),
    Route("GET", "/v1/models/{model_id}", catalogue.model, "One model id"),
    Route("GET", "/v1/capabilities", catalogue.capabilities, "What this server can do", "capabilities"),
    Route("GET", "/api/model/options", catalogue.model_options, "Providers and models to choose from", "model_options"),
    Route("GET", "/v1/skills", catalogue.skills, "Skills of the agent", "skills", answer=schemas.ListAnswer),
    Route("GET", "/v1/toolsets", catalogue.toolsets, "Tools by toolset", "toolsets", answer=schemas.ListAnswer),
    Route("GET", "/v1/tree", tree_routes.tree, "The live tree", "tree", streams=True),
    Route(
        "DELETE",
        "/v1/tree/{node_id}",
        tree_routes.cancel_node,
        "Cancel one node of the tree",
        "tree_cancel",
        body=schemas.ReasonBody,
    ),
)

OPENAI: tuple[Route, ...] = (
    Route(
        "POST",
        "/v1/chat/completions",
        chat_completions.create_chat_completion,
        "Run a turn, the OpenAI way",
        "chat_completions",
        body=schemas.ChatCompletionBody,
        answer=schemas.ChatCompletionAnswer,
        streams=True,
    ),
    Route(
        "POST",
        "/v1/responses",
        responses.create_response,
        "Run a turn, the Responses way",
        "responses",
        body=schemas.ResponseBody,
        answer=schemas.ResponseAnswer,
        streams=True,
    ),
    Route(
        "GET",
        "/v1/responses/{response_id}",
        responses.get_response,
        "A stored response",
        "response",
        answer=schemas.ResponseAnswer,
    ),
    Route(
        "DELETE",
        "/v1/responses/{response_id}",
        responses.remove_response,
        "Forget a response",
        "response_delete",
        answer=schemas.DeletedAnswer,
    ),
    Route(
        "GET",
        "/v1/responses/{response_id}/input_items",
        responses.list_input_items,
        "What was asked",
        answer=schemas.ListAnswer,
    ),
    Route(
        "POST",
        "/v1/responses/{response_id}/cancel",
        responses.cancel_response,
        "Stop a response",
        answer=schemas.ResponseAnswer,
    ),
)

RUN = "/v1/runs/{run_id}"
RUNS: tuple[Route, ...] = (
    Route(
        "POST",
        "/v1/runs",
        runs.create_run,
        "Start a run",
        "runs",
        body=schemas.RunBody,
        answer=schemas.RunAccepted,
        status=202,
    ),
    Route("GET", "/api/runs", run_list.list_runs, "The runs that have not ended", "run_list"),
    Route("GET", RUN, runs.get_run, "The status of a run", "run_status", answer=schemas.RunStatusAnswer),
    Route("GET", f"{RUN}/events", runs.run_events, "The events of a run", "run_events", streams=True, page=True),
    Route(
        "POST",
        f"{RUN}/approval",
        runs.approve_run,
        "Answer an approval",
        "run_approval",
        body=schemas.ApprovalBody,
        answer=schemas.ApprovalAnswer,
    ),
    Route("POST", f"{RUN}/clarify", runs.clarify_run, "Answer a clarification", "run_clarify", schemas.ClarifyBody),
    Route("POST", f"{RUN}/steer", runs.steer_run, "Say something to a running turn", "run_steer", schemas.SteerBody),
    Route("POST", f"{RUN}/stop", runs.stop_run, "Stop a run", "run_stop", schemas.ReasonBody, schemas.RunStatusAnswer),
)

SESSION = "/api/sessions/{session_id}"
SESSIONS: tuple[Route, ...] = (
    Route("GET", "/api/sessions", sessions.list_sessions, "Stored sessions", "sessions", answer=schemas.ListAnswer),
    Route(
        "POST",
        "/api/sessions",
        sessions.create_session,
        "Make a session",
        "session_create",
        schemas.SessionBody,
        schemas.SessionAnswer,
        201,
    ),
    Route("GET", SESSION, sessions.get_session, "A session", "session", answer=schemas.SessionAnswer),
    Route(
        "PATCH",
        SESSION,
        sessions.patch_session,
        "Change a session",
        "session_update",
        schemas.SessionPatch,
        schemas.SessionAnswer,
    ),
    Route(
        "DELETE", SESSION, sessions.delete_session, "Delete a session", "session_delete", answer=schemas.DeletedAnswer
    ),
    Route(
        "GET",
        f"{SESSION}/messages",
        sessions.list_messages,
        "Its messages",
        "session_messages",
        answer=schemas.ListAnswer,
    ),
    Route(
        "POST",
        f"{SESSION}/fork",
        sessions.fork_session,
        "Branch it",
        "session_fork",
        schemas.ForkBody,
        schemas.SessionAnswer,
        201,
    ),
    Route(
        "POST", f"{SESSION}/model", sessions.lock_model, "Fix its model", "session_model_lock", schemas.ModelLockBody
    ),
    Route(
        "POST",
        f"{SESSION}/chat",
        session_chat.chat,
        "Run a turn in it",
        "session_chat",
        schemas.SessionChatBody,
        schemas.SessionChatAnswer,
    ),
    Route(
        "POST",
        f"{SESSION}/chat/stream",
        session_chat.chat_stream,
        "Run a turn in it, as a stream",
        "session_chat_stream",
        schemas.SessionChatBody,
        streams=True,
        page=True,
    ),
)

BROWSER: tuple[Route, ...] = (
    Route(
        "POST",
        browser_control.REGISTER_PATH,
        browser_control.register,
        "Register a browser for a session",
        "browser_control_register",
        schemas.ControllerBody,
        schemas.TicketAnswer,
        201,
    ),
    Route("POST", "/v1/artifacts/upload", browser_control.upload, "Hand a file over", "artifact_upload", status=201),
    Route(
        "GET",
        "/v1/artifacts/download/{artifact_id}",
        browser_control.download,
        "Take a file, once",
        "artifact_download",
        page=True,
        once=True,
    ),
    Route("POST", "/api/auth/ws-ticket", catalogue.websocket_ticket, "A ticket for the gateway's WebSocket"),
)

PAGES: tuple[Route, ...] = (
    *console_routes(),
    Route("GET", "/docs", pages.docs, "The API reference", public=True, page=True),
    Route("GET", "/docs/{name}", pages.docs_file, "A file of the API reference", public=True, page=True),
)

ROUTES: tuple[Route, ...] = (*SERVER, *OPENAI, *RUNS, *SESSIONS, *BROWSER, *PAGES)
