//! An assembler of BPF (RFC 9669) for the few instructions that the programs here are made of.

/// The width of a load or store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// 8 bits.
    Byte,
    /// 16 bits.
    Half,
    /// 32 bits.
    Word,
    /// 64 bits.
    Double,
}

impl Width {
    /// The width that covers as much as possible of `bytes`.
    pub fn within(bytes: usize) -> Self {
        match bytes {
            8.. => Self::Double,
            4.. => Self::Word,
            2.. => Self::Half,
            _ => Self::Byte,
        }
    }

    /// Its bytes.
    pub fn bytes(self) -> usize {
        match self {
            Self::Byte => 1,
            Self::Half => 2,
            Self::Word => 4,
            Self::Double => 8,
        }
    }

    fn code(self) -> u8 {
        match self {
            Self::Word => 0x00,
            Self::Half => 0x08,
            Self::Byte => 0x10,
            Self::Double => 0x18,
        }
    }
}

/// A 64-bit operation on a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Addition.
    Add = 0x00,
    /// Subtraction.
    Subtract = 0x10,
    /// Multiplication.
    Multiply = 0x20,
    /// Division without signs.
    Divide = 0x30,
    /// Bits of either.
    Or = 0x40,
    /// Bits of both.
    And = 0x50,
    /// Shift to the left.
    ShiftLeft = 0x60,
    /// Shift to the right, with zeros.
    ShiftRight = 0x70,
    /// Bits of one of them.
    ExclusiveOr = 0xa0,
    /// The other value.
    Move = 0xb0,
    /// Shift to the right, with the sign.
    ShiftRightSigned = 0xc0,
}

/// A condition of a jump; comparisons are of unsigned 64-bit values unless they say otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Always.
    Always = 0x00,
    /// Equal.
    Equal = 0x10,
    /// Greater.
    Greater = 0x20,
    /// Greater or equal.
    NotLess = 0x30,
    /// One bit in common at least.
    AnyBit = 0x40,
    /// Not equal.
    Differs = 0x50,
    /// Less than zero, or than a signed value.
    LessSigned = 0xc0,
    /// Less.
    Less = 0xa0,
}

/// A register: 0 has results, 1 to 5 arguments and die at calls, 6 to 9 stay, 10 is the stack's end.
pub type Register = u8;

/// A place in a program to which jumps go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label(usize);

/// Functions of the kernel, by their numbers in linux/bpf.h.
pub mod call {
    /// The monotonic clock, ns.
    pub const KTIME_GET_NS: i32 = 5;
    /// The number of this CPU.
    pub const GET_SMP_PROCESSOR_ID: i32 = 8;
    /// Sends the frame out of the interface of register 1; register 2 has flags.
    pub const REDIRECT: i32 = 23;
}

/// A program while it is written.
#[derive(Debug, Default)]
pub struct Assembler {
    instructions: Vec<u64>,
    places: Vec<Option<usize>>,
    jumps: Vec<(usize, Label)>,
}

const CLASS_LOAD_WIDE: u8 = 0x18;
const CLASS_LOAD: u8 = 0x61;
const CLASS_STORE: u8 = 0x63;
const CLASS_STORE_CONSTANT: u8 = 0x62;
const CLASS_JUMP: u8 = 0x05;
const CLASS_OPERATION: u8 = 0x07;
const BY_REGISTER: u8 = 0x08;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
const TO_BIG_ENDIAN: u8 = 0xdc;
/// The source of a wide constant that is the address of a map's only value.
const MAP_VALUE: u8 = 2;

impl Assembler {
    /// An empty program.
    pub fn new() -> Self {
        Self::default()
    }

    /// A label whose place comes later.
    pub fn label(&mut self) -> Label {
        self.places.push(None);
        Label(self.places.len() - 1)
    }

    /// The next instruction is the label's place.
    pub fn place(&mut self, label: Label) {
        self.places[label.0] = Some(self.instructions.len());
    }

    fn push(&mut self, code: u8, to: Register, from: Register, offset: i16, constant: i32) {
        let [low, high] = offset.to_le_bytes();
        let [a, b, c, d] = constant.to_le_bytes();
        // As in memory of a little-endian machine; on others the registers are the other way round.
        let registers = if cfg!(target_endian = "little") { from << 4 | to } else { to << 4 | from };
        let bytes = if cfg!(target_endian = "little") {
            [code, registers, low, high, a, b, c, d]
        } else {
            [code, registers, high, low, d, c, b, a]
        };
        self.instructions.push(u64::from_ne_bytes(bytes));
    }

    /// `to = memory[from + offset]`.
    pub fn load(&mut self, width: Width, to: Register, from: Register, offset: usize) {
        self.push(CLASS_LOAD | width.code(), to, from, offset as i16, 0);
    }

    /// `to = stack[-below]`.
    pub fn load_stack(&mut self, to: Register, below: i16) {
        self.push(CLASS_LOAD | Width::Double.code(), to, 10, -below, 0);
    }

    /// `stack[-below] = from`.
    pub fn store_stack(&mut self, below: i16, from: Register) {
        self.push(CLASS_STORE | Width::Double.code(), 10, from, -below, 0);
    }

    /// `memory[to + offset] = from`.
    pub fn store(&mut self, width: Width, to: Register, offset: usize, from: Register) {
        self.push(CLASS_STORE | width.code(), to, from, offset as i16, 0);
    }

    /// `memory[to + offset] = constant`.
    pub fn store_constant(&mut self, width: Width, to: Register, offset: usize, constant: i32) {
        self.push(CLASS_STORE_CONSTANT | width.code(), to, 0, offset as i16, constant);
    }

    /// `memory[at + offset] += 1`, 64 bits, with two registers in between.
    pub fn count(&mut self, at: Register, offset: usize, between: Register) {
        self.load(Width::Double, between, at, offset);
        self.with(Operation::Add, between, 1);
        self.store(Width::Double, at, offset, between);
    }

    /// `to = to (operation) constant`; the constant's sign is extended.
    pub fn with(&mut self, operation: Operation, to: Register, constant: i32) {
        self.push(CLASS_OPERATION | operation as u8, to, 0, 0, constant);
    }

    /// `to = to (operation) from`.
    pub fn with_register(&mut self, operation: Operation, to: Register, from: Register) {
        self.push(CLASS_OPERATION | BY_REGISTER | operation as u8, to, from, 0, 0);
    }

    /// `to = from`.
    pub fn copy(&mut self, to: Register, from: Register) {
        self.with_register(Operation::Move, to, from);
    }

    /// `to = constant`, 64 bits.
    pub fn set(&mut self, to: Register, constant: u64) {
        match i32::try_from(constant) {
            Ok(small) => self.with(Operation::Move, to, small),
            Err(_) => {
                self.push(CLASS_LOAD_WIDE, to, 0, 0, constant as u32 as i32);
                self.push(0, 0, 0, 0, (constant >> 32) as u32 as i32);
            }
        }
    }

    /// `to` = the address of `offset` bytes within the only value of a map.
    pub fn map_value(&mut self, to: Register, map: i32, offset: usize) {
        self.push(CLASS_LOAD_WIDE, to, MAP_VALUE, 0, map);
        self.push(0, 0, 0, 0, offset as i32);
    }

    /// Keeps 16 bits of a register in the network's order.
    pub fn to_network_half(&mut self, register: Register) {
        self.push(TO_BIG_ENDIAN, register, 0, 0, 16);
    }

    /// Keeps 32 bits of a register in the network's order.
    pub fn to_network_word(&mut self, register: Register) {
        self.push(TO_BIG_ENDIAN, register, 0, 0, 32);
    }

    /// Jumps if the register compares so with a constant.
    pub fn jump_if(&mut self, condition: Condition, register: Register, constant: i32, to: Label) {
        self.jumps.push((self.instructions.len(), to));
        self.push(CLASS_JUMP | condition as u8, register, 0, 0, constant);
    }

    /// Jumps if the first register compares so with the second.
    pub fn jump_if_register(&mut self, condition: Condition, first: Register, second: Register, to: Label) {
        self.jumps.push((self.instructions.len(), to));
        self.push(CLASS_JUMP | BY_REGISTER | condition as u8, first, second, 0, 0);
    }

    /// Jumps.
    pub fn jump(&mut self, to: Label) {
        self.jump_if(Condition::Always, 0, 0, to);
    }

    /// Calls a function of the kernel.
    pub fn call(&mut self, function: i32) {
        self.push(CALL, 0, 0, 0, function);
    }

    /// Ends the program with the verdict in register 0.
    pub fn exit(&mut self) {
        self.push(EXIT, 0, 0, 0, 0);
    }

    /// Returns the instructions, as `bpf(2)` takes them.
    ///
    /// # Panics
    /// If a label has no place: a defect of the program's author.
    pub fn finish(mut self) -> Vec<u64> {
        for (at, label) in std::mem::take(&mut self.jumps) {
            let place = self.places[label.0].unwrap_or_else(|| unreachable!("a label without a place"));
            let offset = (place as i64 - at as i64 - 1) as i16;
            let mut bytes = self.instructions[at].to_ne_bytes();
            bytes[2..4].copy_from_slice(&offset.to_ne_bytes());
            self.instructions[at] = u64::from_ne_bytes(bytes);
        }
        self.instructions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn instructions_are_those_of_the_standard() {
        let mut program = Assembler::new();
        let end = program.label();
        program.load(Width::Half, 2, 1, 12);
        program.jump_if(Condition::Equal, 2, 8, end);
        program.with(Operation::Move, 0, -1);
        program.place(end);
        program.exit();
        let bytes: Vec<[u8; 8]> = program.finish().into_iter().map(u64::to_ne_bytes).collect();
        let expected = [
            [0x69, 0x12, 12, 0, 0, 0, 0, 0],
            [0x15, 0x02, 1, 0, 8, 0, 0, 0],
            [0xb7, 0x00, 0, 0, 0xff, 0xff, 0xff, 0xff],
            [0x95, 0, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(bytes, expected);
    }
}
