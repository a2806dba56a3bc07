//! A self-contained page about a study: it loads nothing from a network, and a click on a column's header sorts the
//! table.

use crate::columns::Column;
use crate::listing::Listing;
use crate::plot::Plot;
use crate::values::{keeps_constraints, state_name, winners};
use ferrotune_display::escape;
use ferrotune_journal::Study;
use ferrotune_space::record::State;

const STYLE: &str = "body{font:14px sans-serif;margin:2em;max-width:90em;color-scheme:light dark;\
--jp-content-font-color1:CanvasText}\
table{border-collapse:collapse;font-size:12px}td,th{padding:.25em .7em;text-align:left;border-bottom:1px solid #8884}\
th{cursor:pointer}svg{max-width:100%;height:auto}pre{background:#8882;padding:1em}.table{overflow:auto;max-height:40em}";

const SORT: &str = "document.querySelectorAll('th').forEach((head,column)=>head.onclick=()=>{\
const body=head.closest('table').tBodies[0],down=head.dataset.down=head.dataset.down==='1'?'':'1';\
const key=row=>row.cells[column].textContent,size=text=>{const [,number,unit]=/^(-?[\\d.e-]+)( [KMGT]iB)?/.exec(text)||[];\
return number===undefined?NaN:number*1024**(unit?'KMGT'.indexOf(unit[1])+1:0)};\
const order=(a,b)=>isNaN(size(a))||isNaN(size(b))?a.localeCompare(b):size(a)-size(b);\
[...body.rows].sort((a,b)=>order(key(a),key(b))*(down?-1:1)).forEach(row=>body.append(row))})";

pub(super) fn page(study: &Study) -> String {
    let name = escape::html(&study.spec.project);
    // The usual columns exist, so this cannot fail.
    let table = Listing::default().table(study).map_or_else(|_| String::new(), |table| html_of(&table));
    let plots: String = Plot::all_of(study).iter().map(|chart| format!("<figure>{}</figure>", chart.svg())).collect();
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>{name}</title><style>{STYLE}</style></head>\
         <body><h1>{name}</h1>{}{}<h2>Trials</h2><div class=\"table\">{table}</div><h2>Plots</h2>{plots}\
         <script>{SORT}</script></body></html>\n",
        facts(study),
        best(study)
    )
}

fn html_of(bundle: &ferrotune_display::Bundle) -> String {
    bundle.data.get("text/html").and_then(|html| html.as_str()).unwrap_or_default().to_owned()
}

/// The objectives, the oracle, and the numbers of trials by state.
fn facts(study: &Study) -> String {
    let objectives: Vec<&str> = study.spec.objectives.iter().map(|objective| objective.metric.as_str()).collect();
    let states = [State::Finished, State::Pruned, State::Failed, State::Running].into_iter().filter_map(|state| {
        let count = study.trials.iter().filter(|trial| trial.state() == state).count();
        (count > 0).then(|| format!("{count} {}", state_name(state)))
    });
    let states: Vec<String> = states.collect();
    let text = format!(
        "Objective: {}. Oracle: {}. {} trials: {}.",
        objectives.join(", "),
        study.spec.oracle,
        study.trials.len(),
        states.join(", ")
    );
    format!("<p>{}</p>", escape::html(&text))
}

/// The number, the values and the parameters of the best trial.
fn best(study: &Study) -> String {
    let Some(best) = winners(study).first().copied() else { return String::new() };
    let values = (0..study.spec.objectives.len()).map(Column::Objective);
    let values: Vec<String> =
        values.map(|column| format!("{} = {}", column.name(study), column.cell(study, best).text)).collect();
    let (number, values) = (best.number, escape::html(&values.join(", ")));
    let note = if keeps_constraints(study, best) { "" } else { " (it breaks a constraint, and no trial breaks none)" };
    format!("<h2>Best: trial {number}, {values}{note}</h2><pre>{}</pre>", escape::html(&crate::snippet(best, None)))
}
