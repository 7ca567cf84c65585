"""The route table: every route of the HTTP surface, once. Capabilities, OpenAPI and the application read it."""

from __future__ import annotations

from hermes.protocols.http import (
    catalogue,
    chat_completions,
    responses,
    runs,
    session_chat,
    sessions,
    tree_routes,
)
from hermes.protocols.http.call import Route

UNSUPPORTED = ("/v1/embeddings", "/v1/completions", "/v1/audio", "/v1/images", "/v1/files", "/v1/threads")
"""OpenAI endpoints that this server does not have, and says so."""

ROUTES: tuple[Route, ...] = (
    Route("GET", "/health", catalogue.health, "Is the server up", "health", public=True),
    Route("GET", "/v1/health", catalogue.health, "Is the server up", public=True),
    Route("GET", "/health/detailed", catalogue.health_detailed, "Readiness, load and the live tree", "health_detailed"),
    Route("GET", "/metrics", catalogue.metrics, "Counters for Prometheus"),
    Route("GET", "/v1/models", catalogue.models, "Model ids", "models"),
    Route("GET", "/v1/models/{model_id}", catalogue.model, "One model id"),
    Route("GET", "/v1/capabilities", catalogue.capabilities, "What this server can do", "capabilities"),
    Route("GET", "/api/model/options", catalogue.model_options, "Providers and models to choose from", "model_options"),
    Route("GET", "/v1/toolsets", catalogue.toolsets, "Tools by toolset", "toolsets"),
    Route(
        "POST",
        "/v1/chat/completions",
        chat_completions.create_chat_completion,
        "Run a turn, the OpenAI way",
        "chat_completions",
        streams=True,
    ),
    Route(
        "POST", "/v1/responses", responses.create_response, "Run a turn, the Responses way", "responses", streams=True
    ),
    Route("GET", "/v1/responses/{response_id}", responses.get_response, "A stored response", "response"),
    Route("DELETE", "/v1/responses/{response_id}", responses.remove_response, "Forget a response", "response_delete"),
    Route("GET", "/v1/responses/{response_id}/input_items", responses.list_input_items, "What was asked"),
    Route("POST", "/v1/responses/{response_id}/cancel", responses.cancel_response, "Stop a response"),
    Route("POST", "/v1/runs", runs.create_run, "Start a run", "runs", status=202),
    Route("GET", "/v1/runs/{run_id}", runs.get_run, "The status of a run", "run_status"),
    Route("GET", "/v1/runs/{run_id}/events", runs.run_events, "The events of a run", "run_events", streams=True),
    Route("POST", "/v1/runs/{run_id}/approval", runs.approve_run, "Answer an approval", "run_approval"),
    Route("POST", "/v1/runs/{run_id}/clarify", runs.clarify_run, "Answer a clarification", "run_clarify"),
    Route("POST", "/v1/runs/{run_id}/steer", runs.steer_run, "Say something to a running turn", "run_steer"),
    Route("POST", "/v1/runs/{run_id}/stop", runs.stop_run, "Stop a run", "run_stop"),
    Route("GET", "/api/sessions", sessions.list_sessions, "Stored sessions", "sessions"),
    Route("POST", "/api/sessions", sessions.create_session, "Make a session", "session_create", status=201),
    Route("GET", "/api/sessions/{session_id}", sessions.get_session, "A session", "session"),
    Route("PATCH", "/api/sessions/{session_id}", sessions.patch_session, "Change a session", "session_update"),
    Route("DELETE", "/api/sessions/{session_id}", sessions.delete_session, "Delete a session", "session_delete"),
    Route("GET", "/api/sessions/{session_id}/messages", sessions.list_messages, "Its messages", "session_messages"),
    Route("POST", "/api/sessions/{session_id}/fork", sessions.fork_session, "Branch it", "session_fork", status=201),
    Route("POST", "/api/sessions/{session_id}/model", sessions.lock_model, "Fix its model", "session_model_lock"),
    Route("POST", "/api/sessions/{session_id}/chat", session_chat.chat, "Run a turn in it", "session_chat"),
    Route(
        "POST",
        "/api/sessions/{session_id}/chat/stream",
        session_chat.chat_stream,
        "Run a turn in it, as a stream",
        "session_chat_stream",
        streams=True,
    ),
    Route("GET", "/v1/tree", tree_routes.tree, "The live tree", "tree", streams=True),
    Route("DELETE", "/v1/tree/{node_id}", tree_routes.cancel_node, "Cancel one node of the tree", "tree_cancel"),
)
