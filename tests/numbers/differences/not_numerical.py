"""Public operations that have no row in the table of operations, and why. A new operation is in neither, and fails a test."""

# A name that ends with `*` stands for all names that begin so.
REASONS = {
    "tells shape, type, device or place of a tensor, or is its graph": """
        Tensor::device Tensor::dim Tensor::dims Tensor::dtype Tensor::elem_count Tensor::id Tensor::is_contiguous
        Tensor::is_fortran_contiguous Tensor::is_variable Tensor::layout Tensor::normalize_axis Tensor::rank Tensor::shape
        Tensor::sorted_nodes Tensor::stride Tensor::strided_blocks Tensor::strided_index Tensor::track_op Tensor::storage_and_layout
    """,
    "is what each case with a gradient calls": "Tensor::backward",
    "applies what it is given": """
        Tensor::apply Tensor::apply_t Tensor::in_f32 Tensor::apply_op1* Tensor::apply_op2* Tensor::apply_op3* Tensor::inplace_op1 Tensor::inplace_op2
        Tensor::inplace_op3 candle_nn::func::*
    """,
    "has no values yet": "Tensor::empty Tensor::empty_like",
    "makes tensors of bytes, with which the program reads each input": "Tensor::from_raw_buffer Tensor::from_storage",
    "draws random numbers, whose distribution the tests of candle's patches and of ferrotune-xla test": """
        Tensor::rand Tensor::rand_like Tensor::randn Tensor::randn_like
    """,
    "reads or writes a file": """
        Tensor::read_npy Tensor::read_npz Tensor::read_npz_by_name Tensor::save_safetensors Tensor::write_bytes Tensor::write_npy
        Tensor::write_npz
    """,
    "finds, names and keeps weights": "candle_nn::var_builder::* candle_nn::var_map::*",
    "makes a layer, whose `forward` or `step` has a row": """
        candle_nn::activation::PReLU::new candle_nn::activation::prelu candle_nn::batch_norm::BatchNorm::new*
        candle_nn::batch_norm::batch_norm candle_nn::conv::Conv1d::new candle_nn::conv::Conv2d::new candle_nn::conv::ConvTranspose1d::new
        candle_nn::conv::ConvTranspose2d::new candle_nn::conv::conv1d candle_nn::conv::conv1d_no_bias candle_nn::conv::conv2d
        candle_nn::conv::conv2d_no_bias candle_nn::conv::conv_transpose1d candle_nn::conv::conv_transpose1d_no_bias
        candle_nn::conv::conv_transpose2d candle_nn::conv::conv_transpose2d_no_bias candle_nn::embedding::Embedding::new
        candle_nn::embedding::embedding candle_nn::group_norm::GroupNorm::new candle_nn::group_norm::group_norm
        candle_nn::layer_norm::LayerNorm::new candle_nn::layer_norm::LayerNorm::new_no_bias candle_nn::layer_norm::LayerNorm::rms_norm
        candle_nn::layer_norm::RmsNorm::new candle_nn::layer_norm::RmsNorm::into_inner candle_nn::layer_norm::layer_norm
        candle_nn::layer_norm::layer_norm_no_bias candle_nn::layer_norm::rms_norm candle_nn::linear::Linear::new candle_nn::linear::linear
        candle_nn::linear::linear_b candle_nn::linear::linear_no_bias candle_nn::ops::Dropout::new candle_nn::ops::Identity::new
        candle_nn::rnn::GRU::new candle_nn::rnn::GRUConfig::default_no_bias candle_nn::rnn::LSTM::new
        candle_nn::rnn::LSTMConfig::default_no_bias candle_nn::rnn::LSTMState::new candle_nn::rnn::gru candle_nn::rnn::lstm
        candle_nn::sequential::Sequential::add candle_nn::sequential::Sequential::add_fn candle_nn::sequential::seq
        candle_nn::attention::AttnMask::causal candle_nn::attention::AttnMask::causal_with_offset
    """,
    "gives back what a layer was made with, or its state": """
        candle_nn::activation::PReLU::is_scalar candle_nn::activation::PReLU::weight candle_nn::attention::AttnMask::is_causal
        candle_nn::attention::AttnMask::kv_offset candle_nn::batch_norm::BatchNorm::eps candle_nn::batch_norm::BatchNorm::momentum
        candle_nn::batch_norm::BatchNorm::running_mean candle_nn::batch_norm::BatchNorm::running_var
        candle_nn::batch_norm::BatchNorm::weight_and_bias candle_nn::conv::Conv1d::bias candle_nn::conv::Conv1d::config
        candle_nn::conv::Conv1d::weight candle_nn::conv::Conv2d::bias candle_nn::conv::Conv2d::config candle_nn::conv::Conv2d::weight
        candle_nn::conv::ConvTranspose1d::bias candle_nn::conv::ConvTranspose1d::config candle_nn::conv::ConvTranspose1d::weight
        candle_nn::conv::ConvTranspose2d::bias candle_nn::conv::ConvTranspose2d::config candle_nn::conv::ConvTranspose2d::weight
        candle_nn::embedding::Embedding::embeddings candle_nn::embedding::Embedding::hidden_size candle_nn::layer_norm::LayerNorm::bias
        candle_nn::layer_norm::LayerNorm::eps candle_nn::layer_norm::LayerNorm::remove_mean candle_nn::layer_norm::LayerNorm::weight
        candle_nn::layer_norm::RmsNorm::eps candle_nn::layer_norm::RmsNorm::weight candle_nn::linear::Linear::bias
        candle_nn::linear::Linear::weight candle_nn::rnn::GRU::config candle_nn::rnn::GRUState::h candle_nn::rnn::LSTM::config
        candle_nn::rnn::LSTMState::c candle_nn::rnn::LSTMState::h candle_nn::sequential::Sequential::is_empty
        candle_nn::sequential::Sequential::len
    """,
    "is a part of a recurrent layer's `seq`, which has a row": """
        candle_nn::rnn::GRU::states_to_tensor candle_nn::rnn::GRU::zero_state candle_nn::rnn::LSTM::states_to_tensor
        candle_nn::rnn::LSTM::zero_state candle_nn::rnn::RNN::states_to_tensor candle_nn::rnn::RNN::step candle_nn::rnn::RNN::zero_state
    """,
    "is a number of Rust for random weights": "candle_nn::init::FanInOut::for_shape candle_nn::init::NonLinearity::gain",
    "keeps keys and values of attention in place, of which the caches with a row do the same": """
        candle_nn::kv_cache::Cache::all_data candle_nn::kv_cache::Cache::current_data candle_nn::kv_cache::Cache::current_seq_len
        candle_nn::kv_cache::Cache::dim candle_nn::kv_cache::Cache::max_seq_len candle_nn::kv_cache::Cache::new
        candle_nn::kv_cache::Cache::reset candle_nn::kv_cache::ConcatKvCache::current_seq_len candle_nn::kv_cache::ConcatKvCache::dim
        candle_nn::kv_cache::ConcatKvCache::into_inner candle_nn::kv_cache::ConcatKvCache::is_empty
        candle_nn::kv_cache::ConcatKvCache::k candle_nn::kv_cache::ConcatKvCache::k_mut candle_nn::kv_cache::ConcatKvCache::new
        candle_nn::kv_cache::ConcatKvCache::reset candle_nn::kv_cache::ConcatKvCache::v candle_nn::kv_cache::ConcatKvCache::v_mut
        candle_nn::kv_cache::IndicesAndMask::* candle_nn::kv_cache::InterleavedKvCache::* candle_nn::kv_cache::KvCache::*
        candle_nn::kv_cache::RawInterleavedKvCache::* candle_nn::kv_cache::RotatingCache::all_data
        candle_nn::kv_cache::RotatingCache::attn_mask candle_nn::kv_cache::RotatingCache::current_data
        candle_nn::kv_cache::RotatingCache::current_seq_len candle_nn::kv_cache::RotatingCache::dim
        candle_nn::kv_cache::RotatingCache::max_seq_len candle_nn::kv_cache::RotatingCache::new candle_nn::kv_cache::RotatingCache::offset
        candle_nn::kv_cache::RotatingCache::positions candle_nn::kv_cache::RotatingCache::reset candle_nn::kv_cache::RotatingKvCache::*
        candle_nn::kv_cache::ScatteredCacheBuilder::* candle_nn::kv_cache::ScatteredKvCache::*
    """,
    "needs a CUDA device": "candle_nn::moe::*",
    "is deprecated, and calls `flash_attn`": "candle_nn::cpu_flash_attention::run_flash_attn_cpu",
    "decodes one token from slices that only candle's models fill": "candle_nn::attention::cpu_flash::causal::causal_decode_f32_interleaved",
    "makes an optimiser, or gives and takes its numbers; `step` has a row": """
        candle_nn::optim::AdamW::learning_rate candle_nn::optim::AdamW::new candle_nn::optim::AdamW::new_lr candle_nn::optim::AdamW::params
        candle_nn::optim::AdamW::set_learning_rate candle_nn::optim::AdamW::set_params candle_nn::optim::Optimizer::backward_step
        candle_nn::optim::Optimizer::empty candle_nn::optim::Optimizer::from_slice candle_nn::optim::Optimizer::learning_rate
        candle_nn::optim::Optimizer::new candle_nn::optim::Optimizer::set_learning_rate candle_nn::optim::Optimizer::step
        candle_nn::optim::SGD::into_inner candle_nn::optim::SGD::learning_rate candle_nn::optim::SGD::new candle_nn::optim::SGD::push
        candle_nn::optim::SGD::set_learning_rate ferrotune_trial::optim::AdamW::learning_rate ferrotune_trial::optim::AdamW::new
        ferrotune_trial::optim::AdamW::new_lr ferrotune_trial::optim::AdamW::set_learning_rate ferrotune_trial::optim::Lion::learning_rate ferrotune_trial::optim::Lion::new
        ferrotune_trial::optim::Lion::set_learning_rate ferrotune_trial::optim::SGD::learning_rate ferrotune_trial::optim::SGD::new
        ferrotune_trial::optim::SGD::set_learning_rate ferrotune_trial::optim::AnyOptimizer::* ferrotune_trial::optim::Config::build
        ferrotune_trial::optim::Config::settings
        ferrotune_trial::optim::ask
    """,
    "is a share of a rate, which the tests in Rust compute by hand": """
        ferrotune_trial::optim::Decay::* ferrotune_trial::optim::constant ferrotune_trial::optim::cosine ferrotune_trial::optim::linear
    """,
    "is what each schedule's row computes": "ferrotune_trial::optim::Schedule::at",
}


def names():
    """Each name or beginning of names."""
    return [name for text in REASONS.values() for name in text.split()]


def is_here(operation):
    return any(operation.startswith(name[:-1]) if name.endswith("*") else operation == name for name in names())


def stale(operations):
    """What the table has and no public operation is."""
    return [name for name in names() if not any(each.startswith(name[:-1]) if name.endswith("*") else each == name for each in operations)]
