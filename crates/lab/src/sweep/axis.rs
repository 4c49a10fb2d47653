//! What is swept: one or two parameters of a load, and their values.

use super::limits;

/// A parameter of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SweepParameter {
    /// Calls at a time on each connection.
    InFlight,
    /// Connections.
    Connections,
    /// How connections are used.
    Mode,
    /// Threads of the generator.
    Threads,
    /// Calls a second of an open loop.
    Rate,
    /// Bytes of a value.
    ValueSize,
    /// Bytes of a message of an echo service.
    Echo,
    /// Operations of one Batch.
    Batch,
    /// What a relay adds to each round trip.
    Delay,
    /// How many streams a relay lets clients open on a connection.
    StreamLimit,
}

impl SweepParameter {
    /// All of them.
    pub const ALL: [SweepParameter; 10] = [
        SweepParameter::InFlight,
        SweepParameter::Connections,
        SweepParameter::Mode,
        SweepParameter::Threads,
        SweepParameter::Rate,
        SweepParameter::ValueSize,
        SweepParameter::Echo,
        SweepParameter::Batch,
        SweepParameter::Delay,
        SweepParameter::StreamLimit,
    ];

    /// Its name, that of its flag.
    pub fn name(self) -> &'static str {
        match self {
            SweepParameter::InFlight => "in-flight",
            SweepParameter::Connections => "connections",
            SweepParameter::Mode => "mode",
            SweepParameter::Threads => "threads",
            SweepParameter::Rate => "rate",
            SweepParameter::ValueSize => "value-size",
            SweepParameter::Echo => "echo",
            SweepParameter::Batch => "batch",
            SweepParameter::Delay => "delay",
            SweepParameter::StreamLimit => "stream-limit",
        }
    }

    /// The parameter of this name.
    pub fn of_name(name: &str) -> Option<SweepParameter> {
        let mut all = SweepParameter::ALL.into_iter();
        all.find(|parameter| parameter.name() == name)
    }

    /// Whether more of it is more load, so that a knee can be looked for.
    pub fn is_load(self) -> bool {
        use SweepParameter::{Batch, Connections, InFlight, Rate, StreamLimit, Threads};
        matches!(
            self,
            InFlight | Connections | Threads | Rate | Batch | StreamLimit
        )
    }

    /// Whether a relay between generator and server makes it.
    pub fn is_of_relay(self) -> bool {
        matches!(self, SweepParameter::Delay | SweepParameter::StreamLimit)
    }
}

/// A parameter and its values, which ascend where they are numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SweepAxis {
    /// The parameter.
    pub parameter: SweepParameter,
    /// Its values as its flag takes them.
    pub values: Vec<String>,
}

/// Why parameters cannot be swept together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AxesError {
    /// Three and more.
    #[error("{0} parameters are swept at once: {most} at most", most = limits::MAX_AXES)]
    TooMany(usize),
    /// One twice.
    #[error("`{0}` is swept twice: give all its values in one list")]
    Twice(&'static str),
}

/// The cells of a sweep: each combination of values. They are numbered from 0; the values of the
/// last parameter change fastest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SweepAxes(Vec<SweepAxis>);

impl SweepAxes {
    /// The cells of these parameters.
    ///
    /// # Errors
    /// If there are too many, or one stands there twice.
    pub fn new(axes: Vec<SweepAxis>) -> Result<SweepAxes, AxesError> {
        if axes.len() > limits::MAX_AXES {
            return Err(AxesError::TooMany(axes.len()));
        }
        if let [one, two] = axes.as_slice()
            && one.parameter == two.parameter
        {
            return Err(AxesError::Twice(one.parameter.name()));
        }
        Ok(SweepAxes(axes))
    }

    /// The parameters.
    pub fn axes(&self) -> &[SweepAxis] {
        &self.0
    }

    /// How many cells there are.
    pub fn cells(&self) -> usize {
        self.0.iter().map(|axis| axis.values.len()).product()
    }

    /// The value of each parameter in a cell.
    pub fn values(&self, cell: usize) -> Vec<(SweepParameter, &str)> {
        let mut rest = cell;
        let mut values = Vec::with_capacity(self.0.len());
        for axis in self.0.iter().rev() {
            let count = axis.values.len().max(1);
            let value = axis.values.get(rest % count).map_or("", String::as_str);
            values.push((axis.parameter, value));
            rest /= count;
        }
        values.reverse();
        values
    }

    /// The cell with the values of these numbers, in the order of the parameters.
    pub fn cell_at(&self, places: &[usize]) -> usize {
        let axes = self.0.iter().zip(places);
        axes.fold(0, |cell, (axis, place)| cell * axis.values.len() + place)
    }

    /// The cell with these values, in the order of the parameters.
    pub fn cell_of(&self, values: &[String]) -> Option<usize> {
        if values.len() != self.0.len() {
            return None;
        }
        self.0
            .iter()
            .zip(values)
            .try_fold(0, |cell, (axis, value)| {
                let at = axis.values.iter().position(|one| one == value)?;
                Some(cell * axis.values.len() + at)
            })
    }

    /// A cell in words: `in-flight=8, connections=2`.
    pub fn label(&self, cell: usize) -> String {
        let values = self.values(cell).into_iter();
        let words = values.map(|(parameter, value)| format!("{}={value}", parameter.name()));
        words.collect::<Vec<_>>().join(", ")
    }

    /// The parameters in words: `in-flight and connections`.
    pub fn names(&self) -> String {
        let names = self.0.iter().map(|axis| axis.parameter.name());
        names.collect::<Vec<_>>().join(" and ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(parameter: SweepParameter, values: &[&str]) -> SweepAxis {
        SweepAxis {
            parameter,
            values: values.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn cells_are_all_combinations() {
        let axes = SweepAxes::new(vec![
            axis(SweepParameter::InFlight, &["1", "2", "4"]),
            axis(SweepParameter::Connections, &["1", "8"]),
        ]);
        let axes = axes.expect("two parameters");
        assert_eq!(axes.cells(), 6);
        assert_eq!(axes.label(0), "in-flight=1, connections=1");
        assert_eq!(axes.label(1), "in-flight=1, connections=8");
        assert_eq!(axes.label(5), "in-flight=4, connections=8");
        for cell in 0..6 {
            let values: Vec<String> = axes
                .values(cell)
                .iter()
                .map(|(_, value)| value.to_string())
                .collect();
            assert_eq!(axes.cell_of(&values), Some(cell));
        }
        assert_eq!((axes.cell_at(&[0, 1]), axes.cell_at(&[2, 1])), (1, 5));
        assert_eq!(axes.cell_of(&["3".into(), "8".into()]), None);
        assert_eq!(axes.cell_of(&["1".into()]), None);
    }

    #[test]
    fn three_parameters_or_one_twice_are_refused() {
        let one = axis(SweepParameter::InFlight, &["1"]);
        let other = axis(SweepParameter::Rate, &["1"]);
        let twice = SweepAxes::new(vec![one.clone(), one.clone()]);
        assert_eq!(twice, Err(AxesError::Twice("in-flight")));
        let many = SweepAxes::new(vec![one.clone(), other, one]);
        assert_eq!(many, Err(AxesError::TooMany(3)));
    }

    #[test]
    fn each_parameter_is_found_by_its_name() {
        for parameter in SweepParameter::ALL {
            assert_eq!(SweepParameter::of_name(parameter.name()), Some(parameter));
        }
        assert_eq!(SweepParameter::of_name("in_flight"), None);
    }
}
