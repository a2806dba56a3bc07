//! What every PJRT plugin must do for us, tried on one: `contract PLUGIN`, on any device that is at hand.
//!
//! Prints a line for each fact, and fails if one does not hold. A fact that the device cannot show is said to be so.

use ferrotune_devices::pjrt::{Client, Code, CompileOptions, Device, Element, Input, Literal, PjrtError, Plugin};
use std::error::Error;
use std::io::Write as _;
use std::process::ExitCode;

type Outcome = Result<String, Box<dyn Error>>;
type Fact = fn(&Bench) -> Outcome;

/// The plugin, and what was opened with it.
struct Bench {
    plugin: Plugin,
    client: Client,
    devices: Vec<Device>,
}

const FACTS: &[(&str, Fact)] = &[
    ("versions are told", versions_are_told),
    ("memory of a device is told", memory_is_told),
    ("arrays of every type come back bit for bit", arrays_come_back),
    ("a transfer tells when it is done", transfers_tell_their_end),
    ("a bf16 matmul is right to its precision", matmul_is_right),
    ("scalars and several outputs keep their shapes", outputs_keep_their_shapes),
    ("a kept input stays and a donated one is gone", donation_is_respected),
    ("an executable tells its memory and cost", executables_tell_their_needs),
    ("a serialised executable runs when it is loaded", serialised_executables_run),
    ("replicas sum over all devices", replicas_sum),
    ("a partitioned program gives what one device gives", partitions_agree),
    ("a program that is none is an error with code and text", bad_programs_are_errors),
    ("inputs that do not fit are errors", bad_inputs_are_errors),
    ("a deleted array cannot be read", deleted_arrays_are_gone),
];

fn main() -> ExitCode {
    let Some(path) = std::env::args_os().nth(1) else {
        eprintln!("usage: contract PLUGIN");
        return ExitCode::from(2);
    };
    match Plugin::load(path.as_ref()).and_then(Bench::open) {
        Ok(bench) => bench.run(),
        Err(error) => {
            eprintln!("contract: {error}");
            ExitCode::FAILURE
        }
    }
}

impl Bench {
    fn open(plugin: Plugin) -> Result<Bench, PjrtError> {
        let client = plugin.client(&[])?;
        let devices = client.devices()?;
        Ok(Bench { plugin, client, devices })
    }

    fn run(&self) -> ExitCode {
        let mut code = ExitCode::SUCCESS;
        for (name, fact) in FACTS {
            let line = match fact(self) {
                Ok(detail) => format!("ok: {name}: {detail}"),
                Err(error) => {
                    code = ExitCode::FAILURE;
                    format!("FAILED: {name}: {error}")
                }
            };
            if writeln!(std::io::stdout(), "{line}").is_err() {
                return ExitCode::FAILURE;
            }
        }
        code
    }

    fn first(&self) -> Result<&Device, Box<dyn Error>> {
        self.devices.first().ok_or_else(|| "there is no device".into())
    }

    /// Runs a program of one device once.
    fn run_one(&self, module: &str, inputs: &[Literal]) -> Result<Vec<Literal>, Box<dyn Error>> {
        let program = self.client.compile(module.as_bytes(), &CompileOptions::default())?;
        let device = self.first()?;
        let buffers: Result<Vec<_>, _> = inputs.iter().map(|input| self.client.upload(input, device)).collect();
        let outputs = program.run(&buffers?.iter().collect::<Vec<_>>())?.wait()?;
        Ok(outputs[0].iter().map(|output| output.download()?.wait()).collect::<Result<_, _>>()?)
    }
}

fn ensure(holds: bool, otherwise: impl Into<String>) -> Result<(), Box<dyn Error>> {
    if holds { Ok(()) } else { Err(otherwise.into().into()) }
}

/// A refusal is what was wanted.
fn refused<T>(result: Result<T, PjrtError>) -> Result<PjrtError, Box<dyn Error>> {
    result.err().ok_or_else(|| "there was no error".into())
}

fn versions_are_told(bench: &Bench) -> Outcome {
    let (major, minor) = bench.plugin.api_version();
    let version = bench.client.version()?;
    let kind = bench.first()?.description()?.kind;
    let platform = bench.client.platform()?;
    ensure(major == 0 && minor > 0 && !platform.is_empty() && !kind.is_empty(), "a name or version is empty")?;
    ensure(bench.client.global_device_count()? >= bench.devices.len(), "fewer devices in all than here")?;
    let ids: Vec<i32> =
        bench.devices.iter().map(|device| Ok(device.description()?.id)).collect::<Result<_, PjrtError>>()?;
    let attributes = bench.plugin.attributes()?.len();
    Ok(format!("PJRT {major}.{minor}, {platform} {version:?}, {kind} {ids:?}, {attributes} attributes"))
}

fn memory_is_told(bench: &Bench) -> Outcome {
    match bench.first()?.memory() {
        Ok(memory) => {
            let limit = memory.limit_bytes.ok_or("there is no limit")?;
            ensure(memory.used_bytes <= limit, "more is used than there is")?;
            Ok(format!("{} of {limit} bytes", memory.used_bytes))
        }
        Err(PjrtError::Refused { code: Code::UNIMPLEMENTED, .. }) => Ok("not told by this plugin".into()),
        Err(error) => Err(error.into()),
    }
}

fn arrays_come_back(bench: &Bench) -> Outcome {
    let mut refused = Vec::new();
    for element in Element::ALL {
        for dims in [&[][..], &[3], &[2, 3, 4]] {
            let count: i64 = dims.iter().product();
            let length = usize::try_from(count)? * element.bytes();
            // Small positive values in every type; 4-bit ones and truth have only a few.
            let byte =
                |index: usize| if matches!(element, Element::Pred | Element::S4 | Element::U4) { 1 } else { index };
            let bytes = (0..length).map(|index| (byte(index) % 100) as u8).collect();
            let literal = Literal::new(element, dims, bytes)?;
            match bench.client.upload(&literal, bench.first()?) {
                Ok(buffer) => {
                    ensure((buffer.element()?, &*buffer.dims()?) == (element, dims), format!("shape of {element:?}"))?;
                    ensure(buffer.device_bytes()? > 0, "takes no memory")?;
                    ensure(buffer.download()?.wait()? == literal, format!("{element:?} {dims:?} changed"))?;
                }
                Err(PjrtError::Refused { .. }) => refused.push(element),
                Err(error) => return Err(error.into()),
            }
        }
    }
    refused.dedup();
    let essential = [Element::F32, Element::Bf16, Element::S32, Element::U32, Element::Pred];
    ensure(essential.iter().all(|element| !refused.contains(element)), format!("refuses {refused:?}"))?;
    Ok(format!("{} types, refused: {refused:?}", Element::ALL.len() - refused.len()))
}

fn transfers_tell_their_end(bench: &Bench) -> Outcome {
    let values = vec![0.5; 1 << 20];
    let literal = Literal::f32(&[1 << 20], &values)?;
    let buffer = bench.client.upload(&literal, bench.first()?)?;
    buffer.ready()?.wait()?;
    let transfer = buffer.download()?;
    let was_ready = transfer.is_ready()?;
    drop(bench.client.upload(&literal, bench.first()?)?.download()?);
    ensure(transfer.wait()? == literal, "the array changed")?;
    Ok(format!("4 MiB; ready at once: {was_ready}; one was dropped under way"))
}

const MATMUL: &str = "module @matmul {
  func.func public @main(%a: tensor<32x64xbf16>, %b: tensor<64x16xbf16>) -> tensor<32x16xf32> {
    %c = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
        : (tensor<32x64xbf16>, tensor<64x16xbf16>) -> tensor<32x16xf32>
    return %c : tensor<32x16xf32>
  }
}";

fn matmul_is_right(bench: &Bench) -> Outcome {
    let values = |count: usize, step: f32| (0..count).map(|index| (index as f32 * step).sin()).collect::<Vec<_>>();
    let a = Literal::bf16(&[32, 64], &values(32 * 64, 0.37))?;
    let b = Literal::bf16(&[64, 16], &values(64 * 16, 0.11))?;
    let outputs = bench.run_one(MATMUL, &[a.clone(), b.clone()])?;
    let (got, a, b) = (outputs[0].to_f32()?, a.to_f32()?, b.to_f32()?);
    let mut worst = 0.0_f64;
    for row in 0..32 {
        for column in 0..16 {
            let product = |k: usize| f64::from(a[row * 64 + k]) * f64::from(b[k * 16 + column]);
            let expected: f64 = (0..64).map(product).sum();
            worst = worst.max((expected - f64::from(got[row * 16 + column])).abs());
        }
    }
    ensure(worst < 1e-4, format!("off by {worst:e}"))?;
    Ok(format!("off by {worst:.1e} at most"))
}

const SHAPES: &str = "module @shapes {
  func.func public @main(%a: tensor<2x3xf32>) -> (tensor<3x2xf32>, tensor<f32>, tensor<6xi32>) {
    %t = stablehlo.transpose %a, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %s = stablehlo.reduce(%a init: %zero) applies stablehlo.add across dimensions = [0, 1]
        : (tensor<2x3xf32>, tensor<f32>) -> tensor<f32>
    %i = stablehlo.iota dim = 0 : tensor<6xi32>
    return %t, %s, %i : tensor<3x2xf32>, tensor<f32>, tensor<6xi32>
  }
}";

fn outputs_keep_their_shapes(bench: &Bench) -> Outcome {
    let program = bench.client.compile(SHAPES.as_bytes(), &CompileOptions::default())?;
    let shapes = program.executable().outputs()?;
    let input = Literal::f32(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])?;
    let outputs = bench.run_one(SHAPES, &[input])?;
    for (output, shape) in outputs.iter().zip(&shapes) {
        ensure((output.element(), output.dims()) == (shape.element, &*shape.dims), format!("{shape:?}"))?;
    }
    ensure(outputs[0].to_f32()? == [1.0, 4.0, 2.0, 5.0, 3.0, 6.0], "the transpose is wrong")?;
    ensure(outputs[1].to_f32()? == [21.0], "the sum is wrong")?;
    ensure(outputs[2].bytes().iter().step_by(4).eq(&[0, 1, 2, 3, 4, 5]), "the numbers are wrong")?;
    Ok(format!("{} outputs of {}", shapes.len(), program.executable().name()?))
}

const UPDATE: &str = "module @update {
  func.func public @main(%a: tensor<1024xf32> {tf.aliasing_output = 0 : i32}) -> tensor<1024xf32> {
    %b = stablehlo.add %a, %a : tensor<1024xf32>
    return %b : tensor<1024xf32>
  }
}";

fn donation_is_respected(bench: &Bench) -> Outcome {
    let program = bench.client.compile(UPDATE.as_bytes(), &CompileOptions::default())?;
    let literal = Literal::f32(&[1024], &[1.0; 1024])?;
    let buffer = bench.client.upload(&literal, bench.first()?)?;
    program.run(&[&buffer])?.wait()?;
    ensure(!buffer.is_deleted()?, "a kept input was donated")?;
    ensure(buffer.download()?.wait()? == literal, "a kept input was overwritten")?;
    let outputs = program.launch(vec![vec![Input::Donate(buffer)]])?.wait()?;
    ensure(outputs[0][0].download()?.wait()?.to_f32()? == [2.0; 1024], "the sum is wrong")?;
    let aliases = program.executable().memory()?.alias_bytes;
    ensure(aliases == 4096, format!("{aliases} bytes of aliases"))?;
    Ok("4096 bytes taken over".into())
}

fn executables_tell_their_needs(bench: &Bench) -> Outcome {
    let program = bench.client.compile(MATMUL.as_bytes(), &CompileOptions::default())?;
    let executable = program.executable();
    ensure(executable.replicas_and_partitions()? == (1, 1), "runs on more than one device")?;
    let memory = executable.memory()?;
    ensure(memory.argument_bytes >= 6144 && memory.output_bytes >= 2048, format!("{memory:?}"))?;
    let cost = executable.cost()?;
    let flops = cost.iter().find(|named| named.name == "flops").ok_or("there are no flops")?;
    Ok(format!("{} flops, {memory:?}", flops.value))
}

fn serialised_executables_run(bench: &Bench) -> Outcome {
    let program = bench.client.compile(UPDATE.as_bytes(), &CompileOptions::default())?;
    let bytes = program.executable().serialize()?;
    let loaded = bench.client.load(&bytes)?;
    let buffer = bench.client.upload(&Literal::f32(&[1024], &[3.0; 1024])?, bench.first()?)?;
    let outputs = loaded.run(&[&buffer])?.wait()?;
    ensure(outputs[0][0].download()?.wait()?.to_f32()? == [6.0; 1024], "the result is wrong")?;
    let error = refused(bench.client.load(b"nothing of the kind"))?;
    ensure(matches!(error, PjrtError::Refused { .. }), error.to_string())?;
    Ok(format!("{} bytes", bytes.len()))
}

fn replicas_sum(bench: &Bench) -> Outcome {
    let count = bench.devices.len();
    if count < 2 {
        return Ok("cannot be shown on one device".into());
    }
    let group = (0..count).map(|device| device.to_string()).collect::<Vec<_>>().join(", ");
    let module = format!(
        "module @sum {{
  func.func public @main(%a: tensor<2xf32>) -> tensor<2xf32> {{
    %s = \"stablehlo.all_reduce\"(%a) ({{
      ^bb0(%x: tensor<f32>, %y: tensor<f32>):
        %z = stablehlo.add %x, %y : tensor<f32>
        stablehlo.return %z : tensor<f32>
    }}) {{replica_groups = dense<[[{group}]]> : tensor<1x{count}xi64>}} : (tensor<2xf32>) -> tensor<2xf32>
    return %s : tensor<2xf32>
  }}
}}"
    );
    let program = bench.client.compile(module.as_bytes(), &CompileOptions::replicated(u32::try_from(count)?))?;
    let mut inputs = Vec::new();
    for (index, device) in program.devices()?.iter().enumerate() {
        let literal = Literal::f32(&[2], &[index as f32, 1.0])?;
        inputs.push(vec![Input::Donate(bench.client.upload(&literal, device)?)]);
    }
    let expected = [(count * (count - 1) / 2) as f32, count as f32];
    for row in program.launch(inputs)?.wait()? {
        let sum = row[0].download()?.wait()?.to_f32()?;
        ensure(sum == expected, format!("{sum:?} for {expected:?}"))?;
    }
    Ok(format!("{count} devices"))
}

/// Rows of the left side spread over the devices, in the annotations of GSPMD; the result is summed over all rows, for
/// which the compiler has to add communication.
fn partitions_agree(bench: &Bench) -> Outcome {
    let count = bench.devices.len();
    if count < 2 {
        return Ok("cannot be shown on one device".into());
    }
    let rows = 2 * count;
    let module = format!(
        "module @spread attributes {{mhlo.num_partitions = {count} : i32}} {{
  func.func public @main(%a: tensor<{rows}x4xf32> {{mhlo.sharding = \"{{devices=[{count},1]<=[{count}]}}\"}})
      -> (tensor<4xf32> {{mhlo.sharding = \"{{replicated}}\"}}) {{
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %s = stablehlo.reduce(%a init: %zero) applies stablehlo.add across dimensions = [0]
        : (tensor<{rows}x4xf32>, tensor<f32>) -> tensor<4xf32>
    return %s : tensor<4xf32>
  }}
}}"
    );
    let program = bench.client.compile(module.as_bytes(), &CompileOptions::partitioned(u32::try_from(count)?))?;
    let values: Vec<f32> = (0..rows * 4).map(|value| value as f32).collect();
    let mut inputs = Vec::new();
    for (device, part) in program.devices()?.iter().zip(values.chunks(8)) {
        inputs.push(vec![Input::Donate(bench.client.upload(&Literal::f32(&[2, 4], part)?, device)?)]);
    }
    let expected: Vec<f32> = (0..4).map(|column| values.iter().skip(column).step_by(4).sum()).collect();
    for row in program.launch(inputs)?.wait()? {
        let sum = row[0].download()?.wait()?.to_f32()?;
        ensure(sum == expected, format!("{sum:?} for {expected:?}"))?;
    }
    Ok(format!("{rows} rows over {count} devices"))
}

fn bad_programs_are_errors(bench: &Bench) -> Outcome {
    match refused(bench.client.compile(b"nothing of the kind", &CompileOptions::default()))? {
        PjrtError::Refused { code, message, .. } if !message.is_empty() => Ok(format!("{code}")),
        error => Err(error.into()),
    }
}

fn bad_inputs_are_errors(bench: &Bench) -> Outcome {
    let program = bench.client.compile(UPDATE.as_bytes(), &CompileOptions::default())?;
    ensure(matches!(refused(program.launch(vec![]))?, PjrtError::Mismatch { .. }), "no inputs for a device")?;
    let count = refused(program.run(&[]).and_then(ferrotune_devices::pjrt::Launch::wait))?;
    let small = bench.client.upload(&Literal::f32(&[2], &[1.0, 2.0])?, bench.first()?)?;
    let size = refused(program.run(&[&small]).and_then(ferrotune_devices::pjrt::Launch::wait))?;
    ensure([&count, &size].iter().all(|error| matches!(error, PjrtError::Refused { .. })), format!("{count}, {size}"))?;
    Ok("number and size".into())
}

fn deleted_arrays_are_gone(bench: &Bench) -> Outcome {
    let buffer = bench.client.upload(&Literal::f32(&[2], &[1.0, 2.0])?, bench.first()?)?;
    buffer.delete()?;
    ensure(buffer.is_deleted()?, "it is still there")?;
    refused(buffer.download().and_then(ferrotune_devices::pjrt::Transfer::wait)).map(|error| error.to_string())
}
