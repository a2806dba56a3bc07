//! Where the values of a part of a plane are.

use crate::shape::dims4;
use crate::{Layout, Result, WithDType};
use std::ops::Range;

pub(super) fn pairs(height: usize, width: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..height).flat_map(move |y| (0..width).map(move |x| (y, x)))
}

fn signed(value: usize) -> isize {
    value as isize
}

/// A part of a plane: whole rows, or a part of one row.
pub(super) struct Tile {
    pub(super) rows: Range<usize>,
    pub(super) columns: Range<usize>,
}

impl Tile {
    pub(super) fn size(&self) -> usize {
        self.rows.len() * self.columns.len()
    }

    /// The places of a plane that belong to this part: `step` apart for each pixel, and `offset` further down and to the right.
    pub(super) fn places(&self, offset: (usize, usize), step: usize, padding: usize) -> Places {
        Places {
            top: signed(offset.0 + self.rows.start * step) - signed(padding),
            left: signed(offset.1 + self.columns.start * step) - signed(padding),
            step,
            height: self.rows.len(),
            width: self.columns.len(),
        }
    }

    /// The number of pixels before this part in a plane that is `width` wide.
    pub(super) fn start(&self, width: usize) -> usize {
        self.rows.start * width + self.columns.start
    }
}

/// The parts of a plane, each of about `most` pixels.
pub(super) fn tiles((height, width): (usize, usize), most: usize) -> Vec<Tile> {
    let (rows, columns) = ((most / width).clamp(1, height), most.min(width));
    let parts = |size: usize, each: usize| (0..size).step_by(each).map(move |start| start..size.min(start + each));
    parts(height, rows)
        .flat_map(|rows| parts(width, columns).map(move |columns| Tile { rows: rows.clone(), columns }))
        .collect()
}

/// The planes of a tensor with four dimensions.
pub(super) struct Planes<'a, T> {
    pub(super) values: &'a [T],
    pub(super) strides: (usize, usize, usize, usize),
    pub(super) height: usize,
    pub(super) width: usize,
}

/// A plane: its values from the first one on, and how far rows and columns are apart.
#[derive(Clone, Copy)]
pub(super) struct Plane<'a, T> {
    pub(super) values: &'a [T],
    pub(super) row: usize,
    pub(super) column: usize,
    pub(super) height: usize,
    pub(super) width: usize,
}

impl<'a, T: WithDType> Planes<'a, T> {
    pub(super) fn new(values: &'a [T], layout: &Layout) -> Result<Planes<'a, T>> {
        let (_, _, height, width) = dims4(layout.dims())?;
        Ok(Planes { values: &values[layout.start_offset()..], strides: dims4(layout.stride())?, height, width })
    }

    pub(super) fn plane(&self, first: usize, second: usize) -> Plane<'a, T> {
        let (stride_0, stride_1, row, column) = self.strides;
        let values = &self.values[first * stride_0 + second * stride_1..];
        Plane { values, row, column, height: self.height, width: self.width }
    }

    /// Whether the values of a plane follow each other.
    pub(super) fn are_dense(&self) -> bool {
        self.strides.3 == 1 && self.strides.2 == self.width
    }
}

/// Places of a plane, `step` apart in both directions. The first ones, and the last ones, may lie outside of the plane.
#[derive(Clone, Copy)]
pub(super) struct Places {
    top: isize,
    left: isize,
    step: usize,
    height: usize,
    width: usize,
}

impl Places {
    /// The numbers of the places that are within `size`, where the first place is at `first`.
    fn inside(first: isize, step: usize, count: usize, size: usize) -> Range<usize> {
        let start = first.min(0).unsigned_abs().div_ceil(step).min(count);
        let end = (signed(size) - first).max(0).unsigned_abs().div_ceil(step).min(count);
        start..end.max(start)
    }

    /// The rows that are inside of a plane with their numbers, and the columns that are.
    fn within(&self, height: usize, width: usize) -> (Range<usize>, Range<usize>) {
        let rows = Places::inside(self.top, self.step, self.height, height);
        (rows, Places::inside(self.left, self.step, self.width, width))
    }

    /// The position of a place along one direction.
    fn at(&self, first: isize, n: usize) -> usize {
        (first + signed(n * self.step)).unsigned_abs()
    }

    /// Writes the values of the places, and zeros for those outside.
    pub(super) fn read<T: WithDType>(&self, plane: Plane<'_, T>, line: &mut [T]) {
        let (rows, columns) = self.within(plane.height, plane.width);
        for (y, line) in line.chunks_exact_mut(self.width).enumerate() {
            if !rows.contains(&y) || columns.is_empty() {
                line.fill(T::zero());
                continue;
            }
            line[..columns.start].fill(T::zero());
            line[columns.end..].fill(T::zero());
            let from = self.at(self.top, y) * plane.row + self.at(self.left, columns.start) * plane.column;
            let (line, values) = (&mut line[columns.clone()], &plane.values[from..]);
            match self.step * plane.column {
                0 => line.fill(values[0]),
                1 => line.copy_from_slice(&values[..line.len()]),
                apart => line.iter_mut().zip(values.iter().step_by(apart)).for_each(|(value, source)| *value = *source),
            }
        }
    }

    /// Adds the values of a line to the places of a dense plane; those outside are left out.
    pub(super) fn add_to<T: WithDType>(&self, plane: &mut [T], (height, width): (usize, usize), line: &[T]) {
        let (rows, columns) = self.within(height, width);
        if columns.is_empty() {
            return;
        }
        for y in rows {
            let from = self.at(self.top, y) * width + self.at(self.left, columns.start);
            let line = &line[y * self.width..][columns.clone()];
            if self.step == 1 {
                for (sum, value) in plane[from..][..line.len()].iter_mut().zip(line) {
                    *sum += *value;
                }
            } else {
                for (sum, value) in plane[from..].iter_mut().step_by(self.step).zip(line) {
                    *sum += *value;
                }
            }
        }
    }
}
