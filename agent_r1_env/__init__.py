"""Tools and tool environments for language models, as Gymnasium environments over text.

Importing this package registers the ``AgentR1/*`` environments with Gymnasium. Training lives in
``agent_r1_env.grpo``, which is imported only by those who train.
"""

from __future__ import annotations

from agent_r1_env.catalog import register
from agent_r1_env.catalog import register_builtin as _register_builtin
from agent_r1_env.env import ToolEnv
from agent_r1_env.errors import (
    AgentR1Error,
    ArgumentError,
    CatalogError,
    DataError,
    MissingExtra,
    RateLimited,
    RecipeError,
    StateError,
    ToolError,
    TransientError,
    UnknownName,
)
from agent_r1_env.messages import CallError, CallFault, FailureKind, Message, Reply, ToolCall, ToolResult
from agent_r1_env.reward import Outcome, Turn
from agent_r1_env.signature import Hidden
from agent_r1_env.spaces import UnicodeText
from agent_r1_env.stopping import StopReason
from agent_r1_env.task import Paragraph, SyntheticDataWarning, Task, TaskSet
from agent_r1_env.tool import Tool, ToolOutput, tool
from agent_r1_env.toolbox import Toolbox

__all__ = [
    "AgentR1Error",
    "ArgumentError",
    "CallError",
    "CallFault",
    "CatalogError",
    "DataError",
    "FailureKind",
    "Hidden",
    "Message",
    "MissingExtra",
    "Outcome",
    "Paragraph",
    "RateLimited",
    "RecipeError",
    "Reply",
    "StateError",
    "StopReason",
    "SyntheticDataWarning",
    "Task",
    "TaskSet",
    "Tool",
    "ToolCall",
    "ToolEnv",
    "ToolError",
    "ToolOutput",
    "ToolResult",
    "Toolbox",
    "TransientError",
    "Turn",
    "UnicodeText",
    "UnknownName",
    "register",
    "tool",
]

__version__ = "0.1.0"

_register_builtin()
