//! Medians, high percentiles and how they are written.

/// What one contestant needed, in microseconds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Samples {
    pub(crate) name: &'static str,
    pub(crate) micros: Vec<f64>,
    /// What hotcell itself says of its stages.
    pub(crate) stages: Vec<[u64; 5]>,
}

impl Samples {
    pub(crate) fn median(&self) -> f64 {
        percentile(&self.micros, 50.0)
    }

    /// What it needs when it is disturbed little.
    pub(crate) fn p10(&self) -> f64 {
        percentile(&self.micros, 10.0)
    }

    pub(crate) fn p99(&self) -> f64 {
        percentile(&self.micros, 99.0)
    }

    /// The median of each stage.
    pub(crate) fn stage_medians(&self) -> [f64; 5] {
        let mut number = 0;
        [(); 5].map(|()| {
            let one = self.stages.iter().filter_map(|stages| stages.get(number));
            let one: Vec<f64> = one.map(|&micros| micros as f64).collect();
            number += 1;
            percentile(&one, 50.0)
        })
    }
}

pub(crate) fn find<'a>(samples: &'a [Samples], name: &str) -> Option<&'a Samples> {
    samples.iter().find(|s| s.name == name)
}

/// The nearest rank; not a number when there is nothing.
pub(crate) fn percentile(values: &[f64], percent: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

/// Microseconds as milliseconds with three digits that count.
pub(crate) fn millis(micros: f64) -> String {
    let millis = micros / 1000.0;
    match millis {
        _ if millis.is_nan() => "–".into(),
        _ if millis < 10.0 => format!("{millis:.2}"),
        _ if millis < 100.0 => format!("{millis:.1}"),
        _ => format!("{millis:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_a_value_that_was_measured() {
        let values = [5.0, 1.0, 4.0, 2.0, 3.0];
        assert_eq!(percentile(&values, 50.0), 3.0);
        assert_eq!(percentile(&values, 99.0), 5.0);
        assert_eq!(percentile(&values[..1], 50.0), 5.0);
        assert!(percentile(&[], 50.0).is_nan());
    }

    #[test]
    fn each_stage_has_its_own_median() {
        let stages = vec![[1, 10, 100, 0, 7], [3, 30, 300, 0, 7], [2, 20, 200, 0, 7]];
        let samples = Samples { stages, ..Samples::default() };
        assert_eq!(samples.stage_medians(), [2.0, 20.0, 200.0, 0.0, 7.0]);
    }
}
