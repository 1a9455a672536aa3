"""Frozen typed configuration: schema, validation, loading of config files and overrides."""

from flaxformer_mt.config.consistency import (
    expected_types as expected_types,
    loss_chunk as loss_chunk,
    uneven_heads as uneven_heads,
)
from flaxformer_mt.config.digest_keys import (
    check_resume as check_resume,
    differences as differences,
)
from flaxformer_mt.config.freeze import (
    ConfigError as ConfigError,
    corpus as corpus,
    default_config as default_config,
    flatten as flatten,
    freeze as freeze,
    thaw as thaw,
    to_dict as to_dict,
    to_text as to_text,
)
from flaxformer_mt.config.load import read_config as read_config
from flaxformer_mt.config.presets import (
    paper_big as paper_big,
    paper_wmt14 as paper_wmt14,
    wmt14_variant as wmt14_variant,
)
from flaxformer_mt.config.schema import (
    WEIGHT_FIELDS as WEIGHT_FIELDS,
    CorpusConfig as CorpusConfig,
    DataConfig as DataConfig,
    DecodingConfig as DecodingConfig,
    ExperimentConfig as ExperimentConfig,
    MeshConfig as MeshConfig,
    ModelConfig as ModelConfig,
    OptimizerConfig as OptimizerConfig,
    ScheduleConfig as ScheduleConfig,
    TrainingConfig as TrainingConfig,
    VocabularyConfig as VocabularyConfig,
)
