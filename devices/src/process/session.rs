//! A client of the device process: its objects, and the service of its requests in their order.

use super::Server;
use super::memory;
use super::objects::{Array, Given, Held, Object, Objects, unknown};
use super::packet::{Incoming, MOST_INLINE, Outgoing};
use super::packets::Packets;
use super::programs::Program;
use super::protocol::{Answer, ClientReport, Id, Payload, Question, Reply, Request, UNASKED, Welcome};
use super::socket::send_json;
use super::waiting::{Waiting, ends_soon};
use crate::memory::places::{Borrowed, LEAST_SHARED, Places};
use crate::memory::{Bytes, Room};
use crate::pjrt::{Buffer, Device, Element, Launch, PjrtError, Refused, Transfer};
use rustix::net::{Shutdown, shutdown};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The stack of a thread that compiles. Only what is used of it takes memory.
const COMPILER_STACK_BYTES: usize = 512 << 20;

/// A client that is connected.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) name: String,
    /// The bytes that this client may use; none for no limit but the device's.
    pub(super) budget: Option<u64>,
    socket: OwnedFd,
    packets: Packets,
    objects: Mutex<Objects>,
    waiting: Waiting,
    /// Where arrays are that this client gets, and that it sends.
    places: Places,
    borrowed: Borrowed,
}

impl Session {
    pub(super) fn new((name, budget): (String, Option<u64>), socket: OwnedFd, objects: Objects) -> Arc<Session> {
        Arc::new_cyclic(|session: &Weak<Session>| {
            let session = session.clone();
            let give_back = move |place| {
                // The client does not read while it sends: it gets no more of these replies than it has places.
                if let Some(session) = session.upgrade().filter(|session| session.borrowed.has(place)) {
                    session.reply(UNASKED, Ok(Answer::Returned(place)));
                }
            };
            let (objects, waiting, places) = (Mutex::new(objects), Waiting::default(), Places::default());
            let (packets, borrowed) = (Packets::default(), Borrowed::new(give_back));
            Session { name, budget, socket, packets, objects, waiting, places, borrowed }
        })
    }

    pub(super) fn objects(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the client has a name. A client that only asks has none.
    pub(super) fn has_name(&self) -> bool {
        !self.name.is_empty()
    }

    pub(super) fn report(&self) -> ClientReport {
        let (bytes, peak_bytes) = self.objects().bytes();
        ClientReport { name: self.name.clone(), bytes, peak_bytes }
    }

    /// Sends the first message, after which the client sends its requests.
    pub(super) fn welcome(&self, welcome: &Welcome) -> io::Result<()> {
        send_json(&self.socket, welcome)
    }

    /// Whether the client has sent what is not handled yet.
    pub(super) fn is_behind(&self) -> bool {
        self.packets.is_any_left(&self.socket)
    }

    /// Makes the client find the end of its connection.
    pub(super) fn hang_up(&self) {
        // A socket whose other side is gone is shut down already.
        let _ = shutdown(&self.socket, Shutdown::Both);
    }

    /// Serves the client until it closes the connection.
    ///
    /// # Errors
    /// If a packet is not whole, or has no valid message; and the system's errors.
    pub(super) fn serve(self: &Arc<Session>, server: &Arc<Server>) -> io::Result<()> {
        self.packets.handle_all(&self.socket, |request, packet| self.handle(server, request, packet))
    }

    fn handle(self: &Arc<Session>, server: &Arc<Server>, request: Request, packet: &mut Incoming) -> io::Result<()> {
        match request {
            Request::Upload { buffer, device, element, dims, bytes } => {
                let made = match packet.payload(&bytes, &self.borrowed) {
                    Ok(bytes) => self.upload(server, device, element, &dims, bytes),
                    // The other requests of the client go on.
                    Err(error) if error.kind() == io::ErrorKind::OutOfMemory => Err(PjrtError::Mismatch {
                        what: format!("an array {dims:?} cannot be mapped: {error}; drop some arrays"),
                    }),
                    Err(error) => return Err(error),
                };
                self.put_buffer(server, buffer, made);
            }
            Request::Copy { buffer, source, device } => {
                let source = self.objects().array(source).cloned();
                let made = source.and_then(|source| source.buffer.copy_to(device_at(server, device)?));
                self.put_buffer(server, buffer, made);
            }
            Request::Execute { executable, inputs, outputs, run } => {
                if let Err(error) = self.execute(server, executable, &inputs, &outputs, run) {
                    let mut objects = self.objects();
                    for id in outputs.into_iter().flatten().chain([run]) {
                        objects.put(id, Object::Failed(error.clone()));
                    }
                }
            }
            Request::Delete { buffer } => {
                let deleted = self.objects().array(buffer).cloned().and_then(|array| array.buffer.delete());
                if let Err(error) = deleted {
                    self.objects().put(buffer, Object::Failed(error));
                }
            }
            Request::Free { ids } => {
                let freed: Vec<Option<Object>> = {
                    let mut objects = self.objects();
                    ids.into_iter().map(|id| objects.take(id)).collect()
                };
                drop(freed);
            }
            Request::Return { places } => places.into_iter().for_each(|place| self.places.returned(place)),
            Request::Mark { generation } => {
                let holders = packet.file()?;
                self.places.lock().forget();
                self.borrowed.lock().clear();
                server.keep_generation(generation, self.objects().lasting(), holders);
            }
            Request::Ask { ticket, question } => self.answer(server, ticket, question, packet)?,
        }
        Ok(())
    }

    fn upload(
        &self,
        server: &Server,
        device: u32,
        element: Element,
        dims: &[i64],
        bytes: Bytes,
    ) -> Result<Buffer, PjrtError> {
        let device = device_at(server, device)?;
        match bytes {
            bytes @ (Bytes::Mapped(_) | Bytes::Lent(_))
                if server.limit.is_of_machine() && bytes.len() >= LEAST_SHARED =>
            {
                // The array takes no memory beside the file's.
                memory::check_budget(server, self, bytes.len() as u64)?;
                server.client.upload_mapped(element, dims, bytes, device)
            }
            bytes => {
                memory::make_room(server, self, bytes.len() as u64)?;
                server.client.upload_bytes(element, dims, &bytes, device)
            }
        }
    }

    fn put_buffer(&self, server: &Server, id: Id, made: Result<Buffer, PjrtError>) {
        let made = made.and_then(|buffer| {
            let bytes = buffer.device_bytes()? as u64;
            Ok(Array { buffer, held: Held::new(bytes, &server.held) })
        });
        let object = made.map_or_else(Object::Failed, |array| Object::Array(Arc::new(array)));
        self.objects().put(id, object);
    }

    /// Starts a run. An input that the client gives away, and that no generation has, is donated.
    fn execute(
        &self,
        server: &Server,
        executable: Id,
        inputs: &[Vec<(Id, bool)>],
        outputs: &[Vec<Id>],
        run: Id,
    ) -> Result<(), PjrtError> {
        let (program, mut rows) = {
            let mut objects = self.objects();
            let program = objects.program(executable).cloned();
            let rows: Vec<Vec<Given>> =
                inputs.iter().map(|row| row.iter().map(|input| Given::of(&mut objects, *input)).collect()).collect();
            (program?, rows)
        };
        if outputs.iter().any(|row| row.len() != program.facts.outputs) {
            let what =
                format!("a run of a program with {} outputs wants another number of them", program.facts.outputs);
            return Err(PjrtError::Mismatch { what });
        }
        let donated: u64 = rows.iter().flatten().map(Given::donated_bytes).sum();
        memory::make_room(server, self, program.needed_bytes(inputs.len()).saturating_sub(donated))?;
        let launch = {
            let inputs =
                rows.iter_mut().map(|row| row.iter_mut().map(Given::input).collect()).collect::<Result<_, _>>()?;
            let _order = (program.facts.devices.len() > 1).then(|| server.joint_runs());
            program.executable.launch_or_return(inputs)
        };
        let Launch { outputs: buffers, done } = launch.map_err(|Refused { error, .. }| error)?;
        let mut objects = self.objects();
        for (ids, row) in outputs.iter().zip(buffers) {
            for (place, (id, buffer)) in ids.iter().zip(row).enumerate() {
                let bytes = match &program.output_bytes {
                    Some(bytes) => bytes.get(place).copied().unwrap_or_default(),
                    None => buffer.device_bytes()? as u64,
                };
                let held = Held::new(bytes, &server.held);
                objects.put(*id, Object::Array(Arc::new(Array { buffer, held })));
            }
        }
        objects.put(run, Object::Run(done));
        Ok(())
    }

    fn answer(
        self: &Arc<Session>,
        server: &Arc<Server>,
        ticket: u64,
        question: Question,
        packet: &mut Incoming,
    ) -> io::Result<()> {
        match question {
            Question::Compile { executable, options, module } => {
                let module = packet.payload(&module, &self.borrowed)?;
                self.make_program(server, ticket, executable, move |server| {
                    server.programs.compiled(&server.client, &module, &options)
                });
            }
            Question::Load { executable, serialized } => {
                let serialized = packet.payload(&serialized, &self.borrowed)?;
                self.make_program(server, ticket, executable, move |server| {
                    server.programs.loaded(&server.client, &serialized)
                });
            }
            Question::Download { buffer } => self.download(ticket, buffer),
            Question::End { of } => self.wait_for(ticket, of),
            Question::Serialize { executable } => {
                let program = self.objects().program(executable).cloned();
                let bytes = program.and_then(|program| program.executable.executable().serialize());
                self.reply_with_bytes(ticket, bytes);
            }
            Question::Cost { executable } => {
                let program = self.objects().program(executable).cloned();
                let cost = program.and_then(|program| program.executable.executable().cost());
                let text =
                    |cost| serde_json::to_vec(&cost).map_err(|error| PjrtError::Mismatch { what: error.to_string() });
                self.reply_with_bytes(ticket, cost.and_then(text));
            }
            Question::BeginProfile => self.reply(ticket, server.begin_profile().map(|()| Answer::Done)),
            Question::EndProfile => self.reply_with_bytes(ticket, server.end_profile()),
            Question::Close => {
                self.reply(ticket, Ok(Answer::Done));
                server.end();
            }
            quick => self.reply(ticket, self.known(server, &quick)),
        }
        Ok(())
    }

    /// The answer to a question that needs no wait.
    fn known(&self, server: &Server, question: &Question) -> Result<Answer, PjrtError> {
        let objects = self.objects();
        Ok(match question {
            Question::Outputs { executable } => {
                Answer::Outputs(objects.program(*executable)?.executable.executable().outputs()?)
            }
            Question::IsOver { of } => match objects.get(*of)? {
                Object::Array(array) => Answer::Is(array.buffer.ready()?.is_ready()?),
                Object::Run(ends) => {
                    Answer::Is(ends.iter().try_fold(true, |over, end| Ok::<_, PjrtError>(over & end.is_ready()?))?)
                }
                _ => return Err(unknown(*of)),
            },
            Question::Shape { buffer } => {
                let buffer = &objects.array(*buffer)?.buffer;
                let device_bytes = buffer.device_bytes()? as u64;
                Answer::Shape { element: buffer.element()?, dims: buffer.dims()?, device_bytes }
            }
            Question::IsDeleted { buffer } => Answer::Is(objects.array(*buffer)?.buffer.is_deleted()?),
            Question::Memory { device } => Answer::Memory(device_at(server, *device)?.memory()?),
            Question::Report => {
                drop(objects);
                Answer::Report(server.report())
            }
            other => return Err(PjrtError::Mismatch { what: format!("the question {other:?} has no answer") }),
        })
    }

    /// Makes a program in a thread of its own, so that the client's other requests go on.
    fn make_program(
        self: &Arc<Session>,
        server: &Arc<Server>,
        ticket: u64,
        id: Id,
        make: impl FnOnce(&Server) -> Result<Arc<Program>, PjrtError> + Send + 'static,
    ) {
        let (session, server) = (self.clone(), server.clone());
        let make = move || {
            let made = make(&server);
            let facts = made.as_ref().map(|program| program.facts.clone()).map_err(Clone::clone);
            session.objects().put(id, made.map_or_else(Object::Failed, Object::Program));
            session.reply(ticket, facts.map(Answer::Compiled));
        };
        // The compiler follows a long chain of operations recursively.
        if let Err(error) = std::thread::Builder::new().stack_size(COMPILER_STACK_BYTES).spawn(make) {
            let what = format!("no thread for the compiler: {error}");
            self.reply(ticket, Err(PjrtError::Mismatch { what }));
        }
    }

    fn download(self: &Arc<Session>, ticket: u64, id: Id) {
        let array = self.objects().array(id).cloned();
        let room = |length| match length {
            ..=MOST_INLINE => Ok(Room::Own(vec![0; length])),
            _ => self.places.room(length)?.map_or_else(|| Room::in_file(length), |place| Ok(Room::Place(place))),
        };
        let transfer = array.and_then(|array| array.buffer.download_into(room));
        let is_over = transfer.as_ref().map_or(true, ends_soon);
        let session = self.clone();
        let reply = move || match transfer.and_then(Transfer::filled) {
            Ok((element, dims, room)) => {
                let answer = |bytes| Reply { ticket, answer: Ok(Answer::Array { element, dims, bytes }) };
                let mut packet = Outgoing::default();
                match packet.push_room(room, answer) {
                    Ok(()) => session.send(Ok(packet)),
                    Err(error) => {
                        let what = format!("an array cannot be sent: {error}");
                        session.reply(ticket, Err(PjrtError::Mismatch { what }));
                    }
                }
            }
            Err(error) => session.reply(ticket, Err(error)),
        };
        if is_over { reply() } else { self.waiting.run(reply) }
    }

    fn wait_for(self: &Arc<Session>, ticket: u64, id: Id) {
        let object = self.objects().get(id).cloned();
        let session = self.clone();
        self.waiting.run(move || {
            let ended = object.and_then(|object| match object {
                Object::Array(array) => array.buffer.ready()?.wait(),
                Object::Run(ends) => ends.iter().try_for_each(crate::pjrt::Event::wait),
                _ => Err(unknown(id)),
            });
            session.reply(ticket, ended.map(|()| Answer::Done));
        });
    }

    fn reply(&self, ticket: u64, answer: Result<Answer, PjrtError>) {
        let mut packet = Outgoing::default();
        self.send(packet.push(&Reply { ticket, answer }).map(|()| packet));
    }

    fn reply_with(&self, ticket: u64, bytes: &[u8], answer: impl FnOnce(Payload) -> Answer) {
        let mut packet = Outgoing::default();
        let pushed = packet.push_with(bytes, |payload| Reply { ticket, answer: Ok(answer(payload)) });
        self.send(pushed.map(|()| packet));
    }

    fn reply_with_bytes(&self, ticket: u64, bytes: Result<Vec<u8>, PjrtError>) {
        match bytes {
            Ok(bytes) => self.reply_with(ticket, &bytes, Answer::Bytes),
            Err(error) => self.reply(ticket, Err(error)),
        }
    }

    /// Sends a reply. A client that has gone needs none; where a reply cannot be made, the client learns that by the end of its connection.
    fn send(&self, packet: io::Result<Outgoing>) {
        if packet.and_then(|mut packet| packet.send(&self.socket, &|| false)).is_err() {
            self.hang_up();
        }
    }
}

fn device_at(server: &Server, place: u32) -> Result<&Device, PjrtError> {
    let missing = || PjrtError::Mismatch { what: format!("there is no device with the number {place}") };
    server.devices.get(place as usize).ok_or_else(missing)
}
