"""The families of methods that are loaded when a host calls the first of them."""

from __future__ import annotations

from typing import Final

from hermes.protocols.gateway import (
    methods_attach,
    methods_browser,
    methods_commands,
    methods_config,
    methods_history,
    methods_host,
    methods_listing,
    methods_spawn_tree,
    methods_tree,
    methods_work,
)
from hermes.protocols.gateway.client import GatewayClient
from hermes.protocols.rpc.method_table import MethodTable

OTHER_FAMILIES: Final[tuple[MethodTable[GatewayClient], ...]] = (
    methods_tree.methods,
    methods_history.methods,
    methods_work.methods,
    methods_spawn_tree.methods,
    methods_attach.methods,
    methods_browser.methods,
    methods_config.methods,
    methods_listing.methods,
    methods_commands.methods,
    methods_host.methods,
)
