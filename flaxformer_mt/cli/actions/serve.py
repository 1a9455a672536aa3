"""The model that `serve` offers, and its server."""

import gc
import os
import sys
from argparse import Namespace

import flaxformer_mt as fm
from flaxformer_mt.api import config_of, say
from flaxformer_mt.cli.arguments import as_asked
from flaxformer_mt.cli.runtime import searched_as_asked
from flaxformer_mt.config.languages import tag_of_each_pair
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.rundir.paths import as_path
from flaxformer_mt.serving.served_model import ServedModel
from flaxformer_mt.serving.server import TranslationServer, address, allow_files, bind
from flaxformer_mt.serving.settings import ServerSettings


def serve(options: Namespace, settings: ServerSettings) -> int:
    """Serves until it is stopped; returns the exit status."""
    # Before the model is loaded, so that errors show at once.
    allow_files(settings.connections)
    with bind(options.host, options.port) as listener:
        translator, model = served_model(options)
        # All objects loaded so far stay, and needn't be searched for garbage.
        gc.freeze()
        server = TranslationServer(translator, model, settings, listener=listener, say=say)
        say(f"{offered(model)}, '{model.weights}': {address(listener)}")
        server.run_until_stopped()
    say("stopped")
    if server.model_at_work:
        # A normal exit would take the compiler from under that thread, which aborts.
        sys.stderr.flush()
        os._exit(0)
    return 0


def served_model(options: Namespace) -> tuple[fm.Translator, ServedModel]:
    run = RunDirectory(as_path(options.workdir))
    config = config_of(run)
    translator = as_asked(
        options, fm.Translator.load(run, which=options.weights, shortlist=options.shortlist)
    )
    translator = searched_as_asked(options, translator)
    directions = tag_of_each_pair(translator.directions)
    src_lang, tgt_lang = next(iter(directions))
    translator = translator.in_languages(src_lang, tgt_lang)
    model = ServedModel(
        src_lang=src_lang,
        tgt_lang=tgt_lang,
        directions=directions,
        name=config.name,
        weights=translator.name,
        beam_size=translator.config.beam_size,
        encoder_layers=config.model.encoder_layers,
        decoder_layers=config.model.decoder_layers,
        diverse=translator.config.diverse_groups > 1,
        codes=frozenset(translator.vocabularies.src.language_codes) | translator.tags,
        together=translator.together,
    )
    return translator, model


def offered(model: ServedModel) -> str:
    """What the model translates, in a few words."""
    first = f"{model.src_lang} to {model.tgt_lang}"
    count = len(model.directions)
    return first if count == 1 else f"{first} (first of {count} directions)"
