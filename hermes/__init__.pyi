"""What ``hermes`` offers, for type checkers; the names themselves are loaded when they are first used."""

from hermes.embedding.agent import Agent as Agent
from hermes.embedding.agent import Server as Server
from hermes.embedding.agent import open_agent as open_agent
from hermes.embedding.agent import open_server as open_server
from hermes.embedding.blocking import AgentClosed as AgentClosed
from hermes.embedding.blocking import AIAgent as AIAgent
from hermes.errors import HermesError as HermesError
from hermes.events import ApprovalsCancelled as ApprovalsCancelled
from hermes.events import BackgroundEnded as BackgroundEnded
from hermes.events import ClientRequestClosed as ClientRequestClosed
from hermes.events import ClientRequestOpened as ClientRequestOpened
from hermes.events import CommandsChanged as CommandsChanged
from hermes.events import ConfigChanged as ConfigChanged
from hermes.events import HistoryCompressed as HistoryCompressed
from hermes.events import HistoryRewound as HistoryRewound
from hermes.events import InterimText as InterimText
from hermes.events import Notice as Notice
from hermes.events import ProcessEnded as ProcessEnded
from hermes.events import ProcessOutput as ProcessOutput
from hermes.events import ReasoningAvailable as ReasoningAvailable
from hermes.events import ReasoningDelta as ReasoningDelta
from hermes.events import RedirectApplied as RedirectApplied
from hermes.events import ServerDraining as ServerDraining
from hermes.events import SessionClosed as SessionClosed
from hermes.events import SessionFailed as SessionFailed
from hermes.events import SessionInfoChanged as SessionInfoChanged
from hermes.events import SessionReclaimed as SessionReclaimed
from hermes.events import SessionsChanged as SessionsChanged
from hermes.events import SessionTitled as SessionTitled
from hermes.events import SkinChanged as SkinChanged
from hermes.events import StatusUpdate as StatusUpdate
from hermes.events import SteerAccepted as SteerAccepted
from hermes.events import SteerDelivered as SteerDelivered
from hermes.events import SubagentProgress as SubagentProgress
from hermes.events import TextDelta as TextDelta
from hermes.events import ThinkingStatus as ThinkingStatus
from hermes.events import TodoUpdated as TodoUpdated
from hermes.events import ToolEnded as ToolEnded
from hermes.events import ToolGenerating as ToolGenerating
from hermes.events import ToolOutputRisk as ToolOutputRisk
from hermes.events import ToolProgress as ToolProgress
from hermes.events import ToolStarted as ToolStarted
from hermes.events import TurnEnded as TurnEnded
from hermes.events import TurnRefused as TurnRefused
from hermes.events import TurnStarted as TurnStarted
from hermes.events import TurnStopping as TurnStopping
from hermes.events import UsageUpdated as UsageUpdated
from hermes.messages import Prompt as Prompt
from hermes.outcomes import CancelReason as CancelReason
from hermes.outcomes import Cause as Cause
from hermes.outcomes import RunStatus as RunStatus
from hermes.outcomes import TurnRecord as TurnRecord
from hermes.settings import Settings as Settings

__version__: str
__all__: list[str]

def __getattr__(name: str) -> object: ...
