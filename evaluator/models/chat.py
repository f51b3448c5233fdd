"""Find the chat template that a run puts its prompts through, or none."""

import logging
from pathlib import Path

from evaluator.config import NO_TEMPLATE, OWN_TEMPLATE, ChatConfig
from evaluator.errors import ConfigError
from evaluator.files.whole import read_bytes, reason
from evaluator.models.source import ModelSource
from evaluator.tokens.chat import ChatForm

logger = logging.getLogger(__name__)


def chat_form(source: ModelSource, chat: ChatConfig | None) -> ChatForm | None:
    """Return the chat template of a run, None for plain prompts.

    With "auto", a model without a template gets plain prompts, and a warning says so; without a ChatConfig, a warning
    says that a model has a template which is not applied.

    Raises ConfigError for a file that cannot be read, ModelError for no default among several templates, and for one
    that refuses conversations.
    """
    if chat is None and source.has_chat_template:
        logger.warning(
            "%s has a chat template, and its prompts are plain, as those of published numbers are. Apply it with "
            "--chat-template auto, or compare both with --chat-template none,auto.",
            source.name,
        )
    if chat is None or chat.template == NO_TEMPLATE:
        return None
    if chat.template == OWN_TEMPLATE and not source.has_chat_template:
        without = "" if chat.system_instruction is None else ", without --system-instruction"
        logger.warning("%s has no chat template, so that its prompts are plain%s.", source.name, without)
        return None
    tokenizer = source.transformers_tokenizer
    form = ChatForm(
        model=source.name,
        tokenizer=tokenizer,
        template=source.own_chat_template if chat.template == OWN_TEMPLATE else _template_in(chat.template),
        source=chat.template,
        demonstrations=chat.demonstrations,
        system_instruction=chat.system_instruction,
        bos=(tokenizer.bos_token or "") if source.add_bos else "",
    )
    form.check()
    return form


def _template_in(name: str) -> str:
    path = Path(name).expanduser()
    try:
        return read_bytes(path).decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(
            f"--chat-template {name}: the file cannot be read ({reason(error)}). Give auto, none or a Jinja file."
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"--chat-template {name}: not a text in UTF-8. Give auto, none or a Jinja file.") from error
